"""Counter snapshots and their differences. A difference is Increase, Reset or Missing, never a silent 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Counter(StrEnum):
    """The project's own names of what is counted, in tokens unless said otherwise; engines map their metrics onto these."""

    LOCAL_QUERIES = "local_queries"
    LOCAL_HITS = "local_hits"
    EXTERNAL_QUERIES = "external_queries"
    EXTERNAL_HITS = "external_hits"
    PROMPT_TOKENS = "prompt_tokens"
    CACHED_TOKENS = "cached_tokens"
    COMPUTED_TOKENS = "computed_tokens"
    GENERATED_TOKENS = "generated_tokens"
    PREEMPTIONS = "preemptions"  # events
    REQUESTS = "requests"  # finished requests
    POOL_LOOKUP_TOKENS = "pool_lookup_tokens"
    POOL_HIT_TOKENS = "pool_hit_tokens"
    POOL_LOADED_CHUNKS = "pool_loaded_chunks"  # chunks
    POOL_READ_CHUNKS = "pool_read_chunks"  # chunks
    POOL_WRITTEN_CHUNKS = "pool_written_chunks"  # chunks
    POOL_EVICTED_CHUNKS = "pool_evicted_chunks"  # chunks
    POOL_ALLOCATION_FAILURES = "pool_allocation_failures"  # events
    POOL_DROPPED_EVENTS = "pool_dropped_events"  # events


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One scrape of one target. `samples` holds only counters that the target exposed; absent means Missing."""

    target: str
    at_ns: int
    """Monotonic nanoseconds when the body had been read."""
    samples: Mapping[Counter, float]
    running: float | None
    waiting: float | None
    process_start: float | None
    """`process_start_time_seconds`, to recognise another process behind the same port."""
    error: str | None = None
    """Why the scrape gave nothing (empty body, HTML, HTTP status); then `samples` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Increase:
    """The counter went from `before` to `after`, `delta` ≥ 0."""

    before: float
    after: float

    @property
    def delta(self) -> int:
        """The increment as a whole number."""
        return round(self.after - self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The counter went backwards or its process changed: nothing can be said about the window."""

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The counter was not exposed, before or after; `reason` says which."""

    reason: str


CounterDelta = Increase | Reset | Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCounters:
    """All deltas around one request (or one concurrency window), per target name (replicas and services)."""

    deltas: Mapping[str, Mapping[Counter, CounterDelta]]

    def value(self, target: str, counter: Counter) -> int | None:
        """The increment, or None where it is Reset, Missing or the target was not read."""
        delta = self.deltas.get(target, {}).get(counter)
        return delta.delta if isinstance(delta, Increase) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Hits that a request must show, as closed ranges in tokens. Cold: all four are 0."""

    local_min: int
    local_max: int
    external_min: int
    external_max: int
