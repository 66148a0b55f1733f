"""Barriers around a measured request: quiet before, settled after, drained before anybody may rely on a store.

Strategy: a barrier ends with the snapshots that proved it, so that the caller needs no further scrape, and with the
nanoseconds it took, which are counted apart from the harness's own overhead. One that gives up is a finding (the block
is void), not an exception.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_delay, wait_fixed

from harness.counters.scraper import Scraper
from harness.model.counting import Counter, Snapshot
from harness.model.findings import Finding
from harness.model.rulebook import rule
from harness.wire import exposition
from harness.wire.lmcache_status import PoolStatus, StatusError

Expected = Mapping[str, Mapping[Counter, float]]
"""Target → counter → value it must have reached (a reading, not an increment)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """How a barrier ended."""

    waited_ns: int
    snapshots: Mapping[str, Snapshot]
    """The last reading of every target the barrier looked at."""
    findings: tuple[Finding, ...] = ()
    polls: int = 1


@dataclass(slots=True)
class _Progress:
    """What the last poll saw."""

    missing: dict[str, str] = field(default_factory=dict)
    """Target → what it still lacks."""
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    polls: int = 0


async def quiesce(scraper: Scraper, *, timeout_s: float = 30.0, interval_s: float = 0.01) -> Waited:
    """Wait until nothing runs or waits on any replica and no counter moved between two readings.

    The gauges alone do not prove it: engines set them on their steps only, so they can lag on both sides. A finding
    (`counter.lag`) names the replicas that did not become quiet.
    """
    replicas = [name for name, target in scraper.targets.items() if not target.is_pool]

    async def look(progress: _Progress) -> None:
        previous, progress.snapshots = progress.snapshots, await scraper.snapshot_all(replicas)
        progress.missing = {
            name: words
            for name, snapshot in progress.snapshots.items()
            if (words := _not_quiet(previous.get(name), snapshot)) is not None
        }

    return await _until(look, rule_id="counter.lag", timeout_s=timeout_s, interval_s=interval_s)


async def settle(scraper: Scraper, expected: Expected, *, timeout_s: float = 5.0, interval_s: float = 0.005) -> Waited:
    """Wait until counters have caught up with a request that has ended; all targets are read in every poll.

    Args:
        scraper: its `resolve` has been called; counters it did not find cannot be waited for and are skipped.
        expected: what must have been reached, e.g. `{"A": {PROMPT_TOKENS: before + usage.prompt_tokens}}`.
        timeout_s: after this the barrier gives up with a `counter.lag` finding for each target that lags.
        interval_s: between two polls.
    """

    async def look(progress: _Progress) -> None:
        progress.snapshots = await scraper.snapshot_all()
        progress.missing = {
            name: words
            for name, counters in expected.items()
            if (words := _behind(scraper, name, progress.snapshots[name], counters)) is not None
        }

    return await _until(look, rule_id="counter.lag", timeout_s=timeout_s, interval_s=interval_s)


async def drain(
    scraper: Scraper,
    *,
    expected: Expected | None = None,
    timeout_s: float = 30.0,
    interval_s: float = 0.02,
    stable_polls: int = 3,
) -> Waited:
    """Wait until every pool has finished its stores: no locks, nothing queued, object count stable, its events counted.

    Stores finish after the response, and begin after it too: without `expected` (e.g. the chunks that must have been
    written by now) a pool that has not been asked yet looks drained, and only `stable_polls` equal readings in a row
    speak against it. A finding (`pool.drain_timeout`) names the pools that did not drain. Nothing to do without pools.
    """
    pools = [name for name, target in scraper.targets.items() if target.is_pool]
    streak: dict[str, list[int | None]] = {name: [] for name in pools}

    async def look(progress: _Progress) -> None:
        progress.missing = {}
        for name in pools:
            words = await _undrained(scraper, name, streak[name], stable_polls)
            if words is None:
                words = await _uncounted(scraper, name, progress, (expected or {}).get(name, {}))
            if words is not None:
                progress.missing[name] = words

    if not pools:
        return Waited(waited_ns=0, snapshots={}, polls=0)
    return await _until(look, rule_id="pool.drain_timeout", timeout_s=timeout_s, interval_s=interval_s)


async def _until(
    look: Callable[[_Progress], Awaitable[None]], *, rule_id: str, timeout_s: float, interval_s: float
) -> Waited:
    progress = _Progress()

    async def poll() -> bool:
        progress.polls += 1
        await look(progress)
        return not progress.missing

    started = time.monotonic_ns()
    retrying = AsyncRetrying(
        retry=retry_if_result(lambda done: not done), stop=stop_after_delay(timeout_s), wait=wait_fixed(interval_s)
    )
    findings: tuple[Finding, ...] = ()
    try:
        await retrying(poll)
    except RetryError:
        findings = tuple(_finding(rule_id, name, words, timeout_s) for name, words in progress.missing.items())
    waited_ns = time.monotonic_ns() - started
    return Waited(waited_ns=waited_ns, snapshots=progress.snapshots, findings=findings, polls=progress.polls)


def _not_quiet(previous: Snapshot | None, snapshot: Snapshot) -> str | None:
    if snapshot.error is not None:
        return snapshot.error
    if snapshot.running or snapshot.waiting:
        return f"{_count(snapshot.running)} running, {_count(snapshot.waiting)} waiting"
    if previous is None:
        return "read only once"
    moved = [
        counter.value for counter in snapshot.samples if snapshot.samples[counter] != previous.samples.get(counter)
    ]
    return f"still moving: {', '.join(moved)}" if moved else None


def _behind(scraper: Scraper, name: str, snapshot: Snapshot, expected: Mapping[Counter, float]) -> str | None:
    if snapshot.error is not None:
        return snapshot.error
    known = scraper.names(name)
    behind = [
        f"{counter.value} is {snapshot.samples.get(counter)}, expected {value:.0f}"
        for counter, value in expected.items()
        if (counter in known or counter in snapshot.samples) and snapshot.samples.get(counter, float("-inf")) < value
    ]
    return "; ".join(behind) or None


async def _undrained(scraper: Scraper, name: str, streak: list[int | None], stable_polls: int) -> str | None:
    try:
        status = await scraper.pool_status(name)
    except StatusError as error:
        streak.clear()
        return f"/status: {error}"
    if status.idle is not True:
        streak.clear()
        return _held(status)
    if streak and streak[-1] != status.objects:
        streak.clear()
    streak.append(status.objects)
    return None if len(streak) >= stable_polls else f"object count {status.objects} not yet stable"


async def _uncounted(scraper: Scraper, name: str, progress: _Progress, expected: Mapping[Counter, float]) -> str | None:
    """Counters of a pool come from an event queue: they are complete once it is empty."""
    scrape = await scraper.fetch(name, "/metrics")
    snapshot = progress.snapshots[name] = scraper.read(name, scrape)
    if snapshot.error is not None:
        return snapshot.error
    depth = exposition.parse(scrape.body.decode("utf-8", errors="replace"), "lmcache").queue_depth
    if depth:
        return f"{depth:.0f} events not yet counted"
    return _behind(scraper, name, snapshot, expected)


def _held(status: PoolStatus) -> str:
    if status.idle is None:
        return "/status does not say how many locks are held"
    return (
        f"{status.write_locked} write locks, {status.read_locked} read locks, "
        f"{status.queued_stores} stores and {status.queued_loads} loads queued"
    )


def _count(gauge: float | None) -> str:
    return "?" if gauge is None else f"{gauge:.0f}"


def _finding(rule_id: str, subject: str, words: str, timeout_s: float) -> Finding:
    detail = f"{subject}: after {timeout_s:.1f} s still {words}" if words else subject
    return Finding(rule=rule_id, severity=rule(rule_id).severity, subject=subject, detail=detail)
