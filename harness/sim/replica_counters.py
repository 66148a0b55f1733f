"""What a replica counts, as plain numbers; `replica_metrics` shows them under vLLM's names.

When: look-ups at admission, prompt tokens at the first token, the rest at the end; each before the chunk leaves that
tells the client about it, so a scrape after the stream is complete.
"""

from __future__ import annotations

import bisect
import copy
import time
from collections import deque
from dataclasses import dataclass, field

SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
REASONS = ("stop", "length", "abort", "error", "repetition")
TOKEN_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5)
ITERATION_BUCKETS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
INTER_TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
LATENCY_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)

HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "request_prompt_tokens": ("Number of prefill tokens processed.", TOKEN_BUCKETS),
    "request_generation_tokens": ("Number of generation tokens processed.", TOKEN_BUCKETS),
    "iteration_tokens_total": ("Histogram of number of tokens per engine_step.", ITERATION_BUCKETS),
    "request_params_max_tokens": ("Histogram of the max_tokens request parameter.", TOKEN_BUCKETS),
    "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", TTFT_BUCKETS),
    "inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", INTER_TOKEN_BUCKETS),
    "e2e_request_latency_seconds": ("Histogram of e2e request latency in seconds.", LATENCY_BUCKETS),
    "request_queue_time_seconds": ("Histogram of time spent in WAITING phase for request.", LATENCY_BUCKETS),
    "request_inference_time_seconds": ("Histogram of time spent in RUNNING phase for request.", LATENCY_BUCKETS),
    "request_prefill_time_seconds": ("Histogram of time spent in PREFILL phase for request.", LATENCY_BUCKETS),
    "request_decode_time_seconds": ("Histogram of time spent in DECODE phase for request.", LATENCY_BUCKETS),
    "request_prefill_kv_computed_tokens": ("Histogram of new KV tokens computed during prefill.", TOKEN_BUCKETS),
}


@dataclass(slots=True)
class Histogram:
    """Counts per bucket (the last is +Inf) and the sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as Prometheus wants them."""
        running, rows = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            rows.append(("+Inf" if bound == float("inf") else str(bound), float(running)))
        return rows


def _histograms() -> dict[str, Histogram]:
    return {name: Histogram(bounds, [0] * (len(bounds) + 1)) for name, (_, bounds) in HISTOGRAMS.items()}


@dataclass(slots=True)
class Counters:
    """Everything that only goes up. Unit: tokens, unless the name says otherwise."""

    local_queries: int = 0
    local_hits: int = 0
    external_queries: int = 0
    external_hits: int = 0
    prompt: int = 0
    prompt_cached: int = 0
    by_source: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    generation: int = 0
    success: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    preemptions: int = 0
    histograms: dict[str, Histogram] = field(default_factory=_histograms)
    created: float = field(default_factory=time.time)

    def observe(self, name: str, value: float) -> None:
        """Add one observation to a histogram."""
        self.histograms[name].observe(value)

    def admit(self, prompt: int, local: int, external: int, external_queries: int) -> None:
        """A request was looked up."""
        self.local_queries += prompt
        self.local_hits += local
        self.external_queries += external_queries
        self.external_hits += external

    def first_token(self, prompt: int, local: int, external: int) -> None:
        """A request's prompt has been processed."""
        self.prompt += prompt
        self.prompt_cached += local + external
        for source, count in zip(SOURCES, (prompt - local - external, local, external), strict=True):
            self.by_source[source] += count
        self.observe("request_prefill_kv_computed_tokens", prompt - local - external)


class CounterBoard:
    """Counters now, and counters as published: late where a lag is configured."""

    def __init__(self, lag_s: float = 0.0) -> None:
        self.now = Counters()
        self._lag_s = lag_s
        self._history: deque[tuple[float, Counters]] = deque([(0.0, copy.deepcopy(self.now))])

    def changed(self) -> None:
        """Remember the present state for later publication."""
        if self._lag_s:
            self._history.append((time.monotonic(), copy.deepcopy(self.now)))

    def published(self) -> Counters:
        """What a scrape shows."""
        if not self._lag_s:
            return self.now
        while len(self._history) > 1 and self._history[1][0] <= time.monotonic() - self._lag_s:
            self._history.popleft()
        return self._history[0][1]

    def restart(self) -> None:
        """As after a restart: everything at zero, with a new creation time."""
        self.now = Counters()
        self._history = deque([(0.0, copy.deepcopy(self.now))])
