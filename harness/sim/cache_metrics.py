"""`/metrics` and `/status` of the cache service, with the names and label sets of LMCache 0.5.4.

Labelled counters appear with their first increment and not before, as the real exporter does it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.sim.chunk_store import ChunkStore

EVICTION_LOOP_S = 1.0
PLAIN_GAUGES = (
    ("lmcache_mp_event_bus_queue_depth", "Events currently queued in the EventBus."),
    ("lmcache_mp_event_bus_drain_lag_seconds", "Seconds since the oldest queued event was published."),
    ("lmcache_mp_active_prefetch_jobs", "Number of active prefetch jobs"),
    ("lmcache_mp_active_p2p_lookup_jobs", "Number of active P2P lookup jobs"),
)


class CacheCollector(Collector):
    """Turns the store's counters into metric families at every scrape."""

    def __init__(self, store: ChunkStore, bytes_per_chunk: int) -> None:
        self._store = store
        self._bytes_per_chunk = bytes_per_chunk
        self._started = time.monotonic()

    def collect(self) -> Iterator[Metric]:
        """Every family that has something to say."""
        yield from self._unlabelled()
        yield from self._labelled()
        for name, text in PLAIN_GAUGES:
            yield GaugeMetricFamily(name, text, value=0.0)
        used = len(self._store) * self._bytes_per_chunk
        yield GaugeMetricFamily("lmcache_mp_l1_memory_usage_bytes", "Bytes currently held in L1 cache", value=used)
        yield GaugeMetricFamily("lmcache_mp_l1_usage_ratio", "L1 used/total ratio (0.0-1.0)", value=self._store.usage)

    def _unlabelled(self) -> Iterator[Metric]:
        counters = self._store.counters
        ticks = int((time.monotonic() - self._started) / EVICTION_LOOP_S)
        yield CounterMetricFamily("lmcache_mp_l1_eviction_loop_ticks", "L1 eviction-loop iterations", value=ticks)
        yield CounterMetricFamily("lmcache_mp_event_bus_dropped_events", "Events dropped by the EventBus", value=0)
        if counters.evictions_triggered:
            yield CounterMetricFamily(
                "lmcache_mp_l1_eviction_loop_triggered", "Iterations where the policy ran", counters.evictions_triggered
            )
        if counters.evicted:
            yield CounterMetricFamily("lmcache_mp_l1_evicted_chunks", "Chunks evicted from L1", counters.evicted)

    def _labelled(self) -> Iterator[Metric]:
        c = self._store.counters
        salted, modelled = ["cache_salt"], ["cache_salt", "model_name"]
        yield from _counter("lmcache_mp_l1_write_chunks", "Total chunks written to L1", salted, _single(c.written))
        yield from _counter("lmcache_mp_l1_read_chunks", "Total chunks read from L1", salted, _single(c.read))
        yield from _counter("lmcache_mp_lookup_requested_tokens", "Tokens submitted for lookup", modelled, c.requested)
        yield from _counter("lmcache_mp_lookup_hit_tokens", "Tokens found during lookup", modelled, c.hit)
        yield from _counter(
            "lmcache_mp_num_chunks_loaded", "Chunks loaded into the engine", [*modelled, "worker_id"], c.loaded
        )
        failures = {("l1_store", model): count for model, count in c.allocation_failures.items()}
        yield from _counter(
            "lmcache_mp_l1_allocation_failure_chunks", "L1 allocation failures", ["during", "model_name"], failures
        )


def _single(counter: dict[str, int]) -> dict[tuple[str, ...], int]:
    return {(label,): count for label, count in counter.items()}


def _counter(name: str, text: str, labels: list[str], values: dict[Any, int]) -> Iterator[Metric]:
    if values:
        family = CounterMetricFamily(name, text, labels=labels)
        for label, value in values.items():
            family.add_metric(label, value)
        yield family


class CacheExposition:
    """The registry of one service."""

    def __init__(self, store: ChunkStore, bytes_per_chunk: int) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(CacheCollector(store, bytes_per_chunk))

    def text(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)


def status(store: ChunkStore, *, bytes_per_chunk: int, workers: dict[str, str], pending_stores: int) -> dict[str, Any]:
    """The body of `/status`; `write_locked_count` and `read_locked_count` are the drain barrier."""
    healthy = {"is_healthy": True, "thread_alive": True}
    level1 = {
        "is_healthy": True,
        "total_object_count": len(store),
        "write_locked_count": store.write_locked,
        "read_locked_count": store.read_locked,
        "temporary_count": 0,
        "memory_used_bytes": len(store) * bytes_per_chunk,
        "memory_total_bytes": store.capacity * bytes_per_chunk,
        "memory_usage_ratio": store.usage,
        "write_ttl_seconds": 600,
        "read_ttl_seconds": 300,
    }
    eviction = {
        **healthy,
        "eviction_policy": "LRU",
        "trigger_watermark": store.watermark,
        "eviction_ratio": store.eviction_ratio,
    }
    return {
        "is_healthy": True,
        "engine_type": "SimulatedCacheServer",
        "chunk_size": store.chunk_size,
        "hash_algorithm": "xxh3_128",
        "active_sessions": 0,
        "storage_manager": {
            "is_healthy": True,
            "l1_manager": level1,
            "store_controller": {
                **healthy,
                "pending_keys_count": 0,
                "in_flight_task_count": pending_stores,
                "num_l2_adapters": 0,
            },
            "prefetch_controller": {**healthy, "in_flight_request_count": 0, "num_l2_adapters": 0},
            "l1_eviction_controller": eviction,
            "num_l2_adapters": 0,
        },
        "active_prefetch_jobs": 0,
        "registered_gpu_ids": [int(worker) for worker in workers],
        "cache_context_meta": {worker: {"model_name": model, "world_size": 1} for worker, model in workers.items()},
    }
