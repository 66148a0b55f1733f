"""Rules of a concurrency window: counters count as sums only, hits per request come from usage.cached_tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.model.counting import Counter, Expectation, Missing, Reset, WindowCounters
from harness.model.findings import Finding
from harness.rules.expect import total_range
from harness.rules.facts import finding, required, summed
from harness.rules.pools import losses

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.payload import Payload
    from harness.model.planned import PlannedRequest
    from harness.model.screening import Arm, EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMember:
    """One request of a window."""

    request: PlannedRequest
    payload: Payload
    observation: Observation
    expectation: Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyWindow:
    """All requests of one window and the counters around the whole of it."""

    key: str
    members: tuple[WindowMember, ...]
    counters: WindowCounters
    arm: Arm
    engine: EngineSpec
    replicas: tuple[str, ...]
    pools: tuple[str, ...]
    block: int | None = None

    @property
    def ok(self) -> bool:
        """True where every request kept its stream contract: only then do the sums have to agree."""
        return all(member.observation.ok for member in self.members)

    def total(self, counter: Counter) -> int | None:
        """Increment over all replicas; None where none exposes it."""
        return summed(self.counters, self.replicas, counter)

    def found(self, rule_id: str, detail: str, subject: str | None = None, **data: object) -> Finding:
        """A finding about the window, or about one of its requests."""
        return finding(rule_id, subject or self.key, detail, block=self.block, **data)


def check_concurrency(window: ConcurrencyWindow) -> list[Finding]:
    """Every finding about one concurrency window, leaks first."""
    return [
        *_member_leaks(window),
        *_sum_leaks(window),
        *_hits_from_nowhere(window),
        *_broken_counters(window),
        *_sums(window),
        *_member_shortfalls(window),
        *_unused_hits(window),
        *_window_shortfall(window),
        *_planned_tokens(window),
        *losses(window.key, window.counters, window.pools, block=window.block),
    ]


def _member_leaks(window: ConcurrencyWindow) -> list[Finding]:
    """usage.cached_tokens ≤ the largest shareable prefix of that request."""
    rule_id = "leak.local" if window.arm.reach == "none" else "leak.external"
    out = []
    for member in window.members:
        cached = member.observation.usage.cached_tokens if member.observation.usage else None
        most = total_range(member.expectation)[1]
        if cached is not None and cached > most:
            key = member.request.key
            words = f"{key} on {member.request.replica} was served {cached:,} cached tokens, at most {most:,} possible"
            out.append(window.found(rule_id, words, key, hits=cached, allowed=most))
    return out


def _sum_leaks(window: ConcurrencyWindow) -> list[Finding]:
    """Summed hits ≤ summed bounds."""
    bounds = [member.expectation for member in window.members]
    pairs = (
        ("leak.local", Counter.LOCAL_HITS, sum(bound.local_max for bound in bounds)),
        ("leak.external", Counter.EXTERNAL_HITS, sum(bound.external_max for bound in bounds)),
    )
    return [
        window.found(rule_id, f"window {window.key}: {hits:,} {counter}, at most {most:,} possible", hits=hits)
        for rule_id, counter, most in pairs
        if window.ok and (hits := window.total(counter)) is not None and hits > most
    ]


def _hits_from_nowhere(window: ConcurrencyWindow) -> list[Finding]:
    """Σ external hits ≤ Σ tokens that the pool found: a hit is what was found, less what was local anyway.

    The upper bounds alone miss a leak that is no larger than what a store that was overtaken did not give.
    """
    found, hits = summed(window.counters, window.pools, Counter.POOL_HIT_TOKENS), window.total(Counter.EXTERNAL_HITS)
    if not window.ok or found is None or hits is None or hits <= found:
        return []
    words = f"window {window.key}: {hits:,} external tokens hit, the pool found only {found:,}"
    return [window.found("leak.external", words, hits=hits, allowed=found)]


def _broken_counters(window: ConcurrencyWindow) -> list[Finding]:
    out = []
    for target in (*window.replicas, *window.pools):
        deltas = window.counters.deltas.get(target, {})
        for counter, delta in deltas.items():
            if isinstance(delta, Reset):
                out.append(window.found("counter.reset", f"window {window.key}: {counter} of {target} went backwards"))
        out.extend(
            window.found("counter.missing", f"window {window.key}: {counter} of {target} is missing")
            for counter in (required(window.engine, window.arm) if target in window.replicas else ())
            if isinstance(deltas.get(counter, Missing(reason="not read")), Missing)
        )
    return out


def _sums(window: ConcurrencyWindow) -> list[Finding]:
    """Per replica Δ queries and Δ prompt tokens = Σ n of what was sent there; Σ hits = Σ cached; no preemption."""
    if count := window.total(Counter.PREEMPTIONS):
        return [window.found("invariant.preemption", f"window {window.key}: {count} preemption(s)", count=count)]
    if not window.ok:
        return []
    out = []
    for replica in window.replicas:
        sent = _prompt_sum([m for m in window.members if m.request.replica == replica])
        for rule_id, counter in (
            ("invariant.queries", Counter.LOCAL_QUERIES),
            ("invariant.prompt_tokens", Counter.PROMPT_TOKENS),
        ):
            counted = window.counters.value(replica, counter)
            if counted is not None and counted != sent:
                words = (
                    f"window {window.key}: {counter} of {replica} rose by {counted:,}, {sent:,} prompt tokens were sent"
                )
                out.append(window.found("counter.lag" if counted < sent else rule_id, words))
    return [*out, *_cached_sum(window)]


def _cached_sum(window: ConcurrencyWindow) -> list[Finding]:
    local = window.total(Counter.LOCAL_HITS)
    if local is None:
        return []
    counted = local + (window.total(Counter.EXTERNAL_HITS) or 0)
    reported = sum(m.observation.usage.cached_tokens or 0 for m in window.members if m.observation.usage)
    if reported == counted:
        return []
    words = f"window {window.key}: responses report {reported:,} cached tokens in all, the counters {counted:,}"
    return [window.found("invariant.cached_tokens", words, reported=reported, counted=counted)]


def _member_shortfalls(window: ConcurrencyWindow) -> list[Finding]:
    """usage.cached_tokens ≥ what the replica itself was sent before; the tier's share is judged over the window."""
    out = []
    for member in window.members:
        usage, least = member.observation.usage, member.expectation.local_min
        if usage is None or not member.observation.ok or (usage.cached_tokens or 0) >= least:
            continue
        words = f"{member.request.key}: {usage.cached_tokens or 0:,} cached tokens, at least {least:,} expected locally"
        out.append(window.found("treatment.local_short", words, member.request.key, expected=least))
    return out


def _unused_hits(window: ConcurrencyWindow) -> list[Finding]:
    """Σ cached ≥ Σ tokens that the pool found, less one a request (the last token is always computed).

    A request is served max(local, found), so no store that was overtaken explains less. Judged on the simulator only:
    a real connector may look up again while a request waits, and then the pool counts the same tokens twice.
    """
    found = summed(window.counters, window.pools, Counter.POOL_HIT_TOKENS)
    if not window.ok or found is None or window.engine.kind != "sim":
        return []
    served = sum(m.observation.usage.cached_tokens or 0 for m in window.members if m.observation.usage)
    if served >= found - len(window.members):
        return []
    words = f"window {window.key}: the pool found {found:,} tokens, the engines used {served:,}"
    words += f": arm {window.arm.name} was not applied"
    return [window.found("treatment.external_short", words, hits=served, expected=found)]


def _window_shortfall(window: ConcurrencyWindow) -> list[Finding]:
    """`window.external_short`: less than everything is possible, for stores end after the response.

    That an arm was not applied at all is judged over the block (`treatment.zero_exposure`).
    """
    least = sum(member.expectation.external_min for member in window.members)
    hits = window.total(Counter.EXTERNAL_HITS)
    if not window.ok or least == 0 or hits is None or hits >= least:
        return []
    words = f"window {window.key}: {hits:,} external tokens hit, {least:,} if every store had ended in time"
    return [window.found("window.external_short", words, hits=hits, expected=least)]


def _planned_tokens(window: ConcurrencyWindow) -> list[Finding]:
    out = []
    for member in window.members:
        usage, planned = member.observation.usage, member.payload.prompt_tokens
        if usage is not None and member.observation.ok and usage.prompt_tokens != planned:
            words = f"{member.request.key}: {usage.prompt_tokens:,} prompt tokens, {planned:,} planned"
            out.append(window.found("invariant.planned_tokens", words, member.request.key))
    return out


def _prompt_sum(members: Sequence[WindowMember]) -> int:
    return sum(member.observation.usage.prompt_tokens for member in members if member.observation.usage)
