"""Rules about the cache service itself: it must be large enough and its own counters complete."""

from __future__ import annotations

from harness.model.counting import Counter, WindowCounters
from harness.model.findings import Finding
from harness.rules.facts import RequestWindow, finding

_RULES = (
    ("pool.eviction", Counter.POOL_EVICTED_CHUNKS, "evicted {count:,} chunk(s)"),
    ("pool.allocation_failure", Counter.POOL_ALLOCATION_FAILURES, "failed to allocate {count:,} time(s)"),
    ("pool.dropped_events", Counter.POOL_DROPPED_EVENTS, "dropped {count:,} event(s)"),
)


def pool_losses(window: RequestWindow) -> list[Finding]:
    """`pool.eviction`, `pool.allocation_failure`, `pool.dropped_events` around one request."""
    return losses(window.request.key, window.counters, window.pools, block=window.block)


def losses(subject: str, counters: WindowCounters, pools: tuple[str, ...], *, block: int | None) -> list[Finding]:
    """Whatever a pool lost between two snapshots; all three counts must be 0 (interfaces.md §6, rule 9)."""
    return [
        finding(
            rule_id, subject, f"{subject}: {pool} {words.format(count=count)}", block=block, count=count, target=pool
        )
        for pool in pools
        for rule_id, counter, words in _RULES
        if (count := counters.value(pool, counter))
    ]
