"""Which series of which server mean which of the project's counters. Tables only; `exposition` reads with them.

Names are those of the exposed samples, exact (never a prefix): a counter `x` is exposed as `x_total` by current
servers, as `x` by some older ones. Where a series was renamed, the older names follow the current one; one of them is
chosen once per target (`exposition.resolve`) and stays chosen, so that a window never mixes two series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from harness.model.counting import Counter

TargetKind = Literal["vllm", "lmcache", "sglang", "llama-cpp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One counter: sample names in order of preference, and label values a sample must have to be summed."""

    names: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTable:
    """How one kind of server exposes its counters."""

    counters: Mapping[Counter, Series]
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    model_label: str | None = None
    """Label that holds the model's name, where samples of several models can stand beside each other."""
    lazy: frozenset[Counter] = frozenset()
    """Counters that the server exposes only after their first event: on a server that shows its `marker`, absent means
    that nothing happened yet, which is 0 (and is reported as assumed, never silently)."""
    marker: str | None = None


def _total(*names: str) -> tuple[str, ...]:
    return tuple(alias for name in names for alias in (f"{name}_total", name))


def _prefix_cache(what: str) -> tuple[str, ...]:
    return _total(f"vllm:prefix_cache_{what}", f"vllm:gpu_prefix_cache_{what}")


VLLM = NameTable(
    counters={
        Counter.LOCAL_QUERIES: Series(names=_prefix_cache("queries")),
        Counter.LOCAL_HITS: Series(names=_prefix_cache("hits")),
        Counter.EXTERNAL_QUERIES: Series(names=_total("vllm:external_prefix_cache_queries")),
        Counter.EXTERNAL_HITS: Series(names=_total("vllm:external_prefix_cache_hits")),
        Counter.PROMPT_TOKENS: Series(names=_total("vllm:prompt_tokens")),
        Counter.CACHED_TOKENS: Series(names=_total("vllm:prompt_tokens_cached")),
        Counter.COMPUTED_TOKENS: Series(
            names=_total("vllm:prompt_tokens_by_source"), labels={"source": "local_compute"}
        ),
        Counter.GENERATED_TOKENS: Series(names=_total("vllm:generation_tokens")),
        Counter.PREEMPTIONS: Series(names=_total("vllm:num_preemptions")),
        Counter.REQUESTS: Series(names=_total("vllm:request_success")),
    },
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    model_label="model_name",
)

_POOL_COUNTERS = {
    Counter.POOL_LOOKUP_TOKENS: Series(names=_total("lmcache_mp_lookup_requested_tokens")),
    Counter.POOL_HIT_TOKENS: Series(names=_total("lmcache_mp_lookup_hit_tokens")),
    Counter.POOL_LOADED_CHUNKS: Series(names=_total("lmcache_mp_num_chunks_loaded")),
    Counter.POOL_READ_CHUNKS: Series(names=_total("lmcache_mp_l1_read_chunks")),
    Counter.POOL_WRITTEN_CHUNKS: Series(names=_total("lmcache_mp_l1_write_chunks")),
    Counter.POOL_EVICTED_CHUNKS: Series(names=_total("lmcache_mp_l1_evicted_chunks")),
    Counter.POOL_ALLOCATION_FAILURES: Series(
        names=_total("lmcache_mp_l1_allocation_failure_chunks", "lmcache_mp_l1_allocation_failure")
    ),
    Counter.POOL_DROPPED_EVENTS: Series(names=_total("lmcache_mp_event_bus_dropped_events")),
}

LMCACHE = NameTable(
    counters=_POOL_COUNTERS,
    lazy=frozenset(_POOL_COUNTERS) - {Counter.POOL_DROPPED_EVENTS},
    marker="lmcache_mp_event_bus_dropped_events_total",
)

SGLANG = NameTable(
    counters={
        Counter.PROMPT_TOKENS: Series(names=_total("sglang:prompt_tokens")),
        Counter.GENERATED_TOKENS: Series(names=_total("sglang:generation_tokens")),
        Counter.CACHED_TOKENS: Series(names=_total("sglang:cached_tokens")),
        Counter.REQUESTS: Series(names=_total("sglang:num_requests")),
    },
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    model_label="model_name",
)
"""Where a hit came from is a label here (`cache_source`); its values are not captured yet, so hits are not split."""

LLAMA_CPP = NameTable(
    counters={
        Counter.COMPUTED_TOKENS: Series(names=_total("llamacpp:prompt_tokens")),
        Counter.GENERATED_TOKENS: Series(names=_total("llamacpp:tokens_predicted")),
    },
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
)
"""Counts only tokens it really processed; what was cached is in each response's `timings` (`wire.chunks` reads it)."""

TABLES: Mapping[TargetKind, NameTable] = {
    "vllm": VLLM,
    "lmcache": LMCACHE,
    "sglang": SGLANG,
    "llama-cpp": LLAMA_CPP,
}

KIND_OF: Mapping[str, TargetKind] = {
    "sim": "vllm",
    "vllm": "vllm",
    "vllm-cpu": "vllm",
    "remote": "vllm",
    "sglang": "sglang",
    "llama-cpp": "llama-cpp",
    "sim-cache": "lmcache",
    "lmcache": "lmcache",
}
"""Engine and service kinds of a declaration → the table of their metrics; the simulator speaks vLLM's and LMCache's."""
