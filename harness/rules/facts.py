"""What a rule may look at: one single-request window, with the counters of every target around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.model.counting import Counter, Expectation, Increase, Missing, WindowCounters
from harness.model.findings import Finding
from harness.model.rulebook import rule

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.payload import Payload
    from harness.model.planned import PlannedRequest
    from harness.model.screening import Arm, EngineSpec

NO_COUNTERS = frozenset({"llama-cpp"})
"""Engine kinds that expose no per-token cache counters; their rows rest on `usage.cached_tokens` alone."""

_ALWAYS = (Counter.LOCAL_QUERIES, Counter.LOCAL_HITS, Counter.PROMPT_TOKENS)
_WITH_TIER = (Counter.EXTERNAL_QUERIES, Counter.EXTERNAL_HITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWindow:
    """One request, alone on the system, and what was counted around it."""

    request: PlannedRequest
    payload: Payload
    observation: Observation
    counters: WindowCounters
    expectation: Expectation
    arm: Arm
    engine: EngineSpec
    replicas: tuple[str, ...]
    pools: tuple[str, ...]
    """Names of the cache services that were read."""
    block: int | None = None

    @property
    def n(self) -> int | None:
        """usage.prompt_tokens, the server's own count; None where the response carried none."""
        return self.observation.usage.prompt_tokens if self.observation.usage else None

    @property
    def n_or_planned(self) -> int:
        """usage.prompt_tokens, or the planned count where the response carried none."""
        return self.payload.prompt_tokens if self.n is None else self.n

    @property
    def targets(self) -> tuple[str, ...]:
        """Everything that was read."""
        return (*self.replicas, *self.pools)

    def here(self, counter: Counter) -> int | None:
        """Increment at the addressed replica; None where it is reset or missing."""
        return self.counters.value(self.request.replica, counter)

    def pooled(self, counter: Counter) -> int | None:
        """Increment summed over the cache services that expose it; None where none does."""
        return summed(self.counters, self.pools, counter)

    def found(self, rule_id: str, detail: str, **data: object) -> Finding:
        """A finding about this request."""
        return finding(rule_id, self.request.key, detail, block=self.block, **data)


Check = Callable[[RequestWindow], list[Finding]]


def finding(rule_id: str, subject: str, detail: str, *, block: int | None = None, **data: object) -> Finding:
    """A finding with the severity that the rulebook gives its rule."""
    return Finding(
        rule=rule_id, severity=rule(rule_id).severity, subject=subject, detail=detail, block=block, data=data
    )


def summed(counters: WindowCounters, targets: tuple[str, ...], counter: Counter) -> int | None:
    """Increment summed over the targets that expose it; None where none of them does."""
    known = [value for target in targets if (value := counters.value(target, counter)) is not None]
    return sum(known) if known else None


def required(engine: EngineSpec, arm: Arm) -> tuple[Counter, ...]:
    """Counters that every replica of this arm must expose: without them no rule can say that a cold row was cold."""
    if engine.kind in NO_COUNTERS:
        return ()
    if arm.reach == "none" or engine.kind == "sglang":
        return _ALWAYS if engine.kind != "sglang" else (Counter.PROMPT_TOKENS,)
    return (*_ALWAYS, *_WITH_TIER)


def was_idle(counters: WindowCounters, target: str) -> bool:
    """True where every counter of work of that replica stood still (unknown counters say nothing)."""
    return not any(
        isinstance(delta := counters.deltas.get(target, {}).get(counter, Missing(reason="not read")), Increase)
        and delta.delta
        for counter in (Counter.LOCAL_QUERIES, Counter.PROMPT_TOKENS, Counter.GENERATED_TOKENS)
    )
