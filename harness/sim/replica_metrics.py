"""`/metrics` of a replica: vLLM's families, names and label sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.sim.replica_counters import HISTOGRAMS, CounterBoard, Counters

BASE = ["engine", "model_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Levels of the moment."""

    running: int = 0
    waiting: int = 0
    usage: float = 0.0


class ReplicaCollector(Collector):
    """Turns the published counters into metric families at every scrape."""

    def __init__(
        self, board: CounterBoard, model: str, gauges: Callable[[], Gauges], config: dict[str, str], *, external: bool
    ) -> None:
        self._board = board
        self._labels = ["0", model]
        self._gauges = gauges
        self._config = config
        self._external = external
        self.started_at: float | None = None

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        counters = self._board.published()
        yield from self._levels()
        yield from self._plain(counters)
        yield from self._labelled(counters)
        yield from self._distributions(counters)
        info = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=list(self._config)
        )
        info.add_metric(list(self._config.values()), 1.0)
        yield info
        if self.started_at is not None:
            yield GaugeMetricFamily(
                "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", self.started_at
            )

    def _levels(self) -> Iterator[Metric]:
        gauges = self._gauges()
        rows = (
            ("num_requests_running", "Number of requests in model execution batches.", float(gauges.running)),
            ("num_requests_waiting", "Number of requests waiting to be processed.", float(gauges.waiting)),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", gauges.usage),
        )
        for name, text, value in rows:
            family = GaugeMetricFamily(f"vllm:{name}", text, labels=BASE)
            family.add_metric(self._labels, value)
            yield family
        reasons = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", labels=[*BASE, "reason"]
        )
        reasons.add_metric([*self._labels, "capacity"], float(gauges.waiting))
        reasons.add_metric([*self._labels, "deferred"], 0.0)
        yield reasons

    def _plain(self, c: Counters) -> Iterator[Metric]:
        rows: list[tuple[str, str, int]] = [
            ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", c.local_queries),
            ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", c.local_hits),
            ("num_preemptions", "Cumulative number of preemption from the engine.", c.preemptions),
            ("prompt_tokens", "Number of prefill tokens processed.", c.prompt),
            ("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", c.prompt_cached),
            ("generation_tokens", "Number of generation tokens processed.", c.generation),
        ]
        if self._external:
            text = "External prefix cache {} from KV connector cross-instance cache sharing, in terms of tokens."
            rows.insert(2, ("external_prefix_cache_queries", text.format("queries"), c.external_queries))
            rows.insert(3, ("external_prefix_cache_hits", text.format("hits"), c.external_hits))
        for name, text, value in rows:
            family = CounterMetricFamily(f"vllm:{name}", text, labels=BASE)
            family.add_metric(self._labels, value, created=c.created)
            yield family

    def _labelled(self, c: Counters) -> Iterator[Metric]:
        rows = (
            (
                "prompt_tokens_by_source",
                "Number of prompt tokens by source.",
                ["engine", "model_name", "source"],
                c.by_source,
            ),
            (
                "request_success",
                "Count of successfully processed requests.",
                ["engine", "model_name", "finished_reason"],
                c.success,
            ),
        )
        for name, text, labels, values in rows:
            family = CounterMetricFamily(f"vllm:{name}", text, labels=labels)
            for label, value in values.items():
                family.add_metric([*self._labels, label], value, created=c.created)
            yield family

    def _distributions(self, c: Counters) -> Iterator[Metric]:
        for name, (text, _) in HISTOGRAMS.items():
            histogram = c.histograms[name]
            family = HistogramMetricFamily(f"vllm:{name}", text, labels=BASE)
            family.add_metric(self._labels, histogram.cumulative(), histogram.total)
            yield family


class ReplicaExposition:
    """The registry of one replica."""

    def __init__(self, collector: ReplicaCollector) -> None:
        self._collector = collector
        self._registry = CollectorRegistry()
        PlatformCollector(registry=self._registry)
        self._process = ProcessCollector(registry=self._registry)
        self._registry.register(collector)

    def text(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)

    def restarted(self, at: float) -> None:
        """From now on show this as the start time of the process."""
        if self._collector.started_at is None:
            self._registry.unregister(self._process)
        self._collector.started_at = at


def cache_config(*, block_size: int, num_gpu_blocks: int, offload_tokens: int) -> dict[str, str]:
    """Labels of `vllm:cache_config_info`; the offload size says whether native offload is on."""
    return {
        "_block_size_resolved": "True",
        "block_size": str(block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "engine": "0",
        "gpu_memory_utilization": "0.92",
        "is_attention_free": "False",
        "kv_cache_max_concurrency": "64.0",
        "kv_cache_size_tokens": str(block_size * num_gpu_blocks),
        "kv_offloading_backend": "native",
        "kv_offloading_size": str(offload_tokens) if offload_tokens else "None",
        "mamba_cache_mode": "none",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(num_gpu_blocks),
        "num_gpu_blocks_override": "None",
        "prefix_caching_hash_algo": "xxh3_128",
        "sliding_window": "None",
        "user_specified_block_size": "True",
    }
