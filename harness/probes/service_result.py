"""From the requests of layer 5 to its checks, verdict and words. Pure.

The verdict is one word for the worst that was found, in the order of `_VERDICTS`; the checks show everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.model.findings import Finding
from harness.probes.results import Check, LayerResult, from_checks, not_validated
from harness.probes.service_causes import WORST_FIRST
from harness.probes.service_rows import Row
from harness.rules.treatment import zero_exposure

if TYPE_CHECKING:
    from harness.model.screening import Reach, Screening
    from harness.probes.service_plan import ServicePlan

_POOL = ("pool.eviction", "pool.allocation_failure")
_LEAKS = ("leak.local", "leak.external", "leak.pool_lookup")
_SHORT = ("treatment.external_short", "treatment.not_loaded", "treatment.zero_exposure")
_SHOWN = 3
_IDLE = "no transfer was checked: each replica's own cache held what its tier could have given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What happened: every request in order, and why the run ended early, if it did."""

    rows: tuple[Row, ...]
    health: tuple[Finding, ...]
    stopped: str | None
    """`isolation`, `dead`, or None."""
    controls: int
    pools: tuple[str, ...]
    nonce: str


def result_of(played: Played, plan: ServicePlan, screening: Screening, *, reach: Reach, seconds: float) -> LayerResult:
    """Checks, facts and the verdict of the layer.

    Where no request had to load anything from the tier, a shared one was not validated. A tier of each replica alone
    (reach `replica`) is not needed while the replica's own cache holds everything, here as in the screening itself:
    the other checks stand, and the summary says what they leave out.
    """
    exact = screening.checks.answers == "exact"
    facts = facts_of(played, plan, exact=exact)
    checks = [_isolation(played.rows)]
    if played.stopped == "isolation":
        result = from_checks("service", checks, facts=facts, seconds=seconds)
        return replace(result, verdict="salt ignored", summary=_isolation_words(played.rows))
    checks += _checks(played, plan, exact=exact)
    result = from_checks("service", checks, facts=facts, seconds=seconds)
    idle = not any(row.expected.external_min for row in played.rows)
    if idle and reach == "all":
        return not_validated("service", "no request of the set can hit the shared tier of this arm", facts=facts)
    verdict = _verdict(played)
    if result.status == "passed":
        words = _passed_words(plan, facts, exact=exact)
        return replace(result, summary=f"{words}; {_IDLE}" if idle else words)
    return replace(result, verdict=verdict, summary=_failed_words(played, verdict))


def facts_of(played: Played, plan: ServicePlan, *, exact: bool) -> dict[str, Any]:
    """What the report shows beside the checks."""
    planned = [row for row in played.rows if row.part == "plan"]
    return {
        "set": plan.composition.name,
        "requests": len(planned),
        "requests_planned": len(plan.requests),
        "warmups": sum(row.part == "warmup" for row in played.rows),
        "canaries": sum(row.part == "canary" for row in played.rows),
        "salt_controls": played.controls,
        "answers": "exact" if exact else "none: this model cannot answer, counters and texts are compared instead",
        "prompt_tokens": sum(row.prompt_tokens or 0 for row in planned),
        "longest_prompt": max((row.prompt_tokens or 0 for row in planned), default=0),
        "external_hits": sum(row.external_hits or 0 for row in planned),
        "loaded_chunks": sum(row.loaded_chunks or 0 for row in planned),
        "evicted_chunks": sum(row.evicted_chunks or 0 for row in played.rows),
        "allocation_failures": sum(row.allocation_failures or 0 for row in played.rows),
        "causes": dict(Counter(row.cause for row in planned if row.cause)),
        "text_equality": text_equality(planned),
        "nonce": played.nonce,
    }


def text_equality(rows: Iterable[Row]) -> dict[str, str]:
    """Role → `equal/compared`: texts of reused requests beside the text of the same body when cold.

    Informational: near-tie numerics may change a text with intact state (COR-3).
    """
    cold = {row.payload_id: row.answer for row in rows if row.role == "cold" and row.ok}
    compared: dict[str, list[bool]] = {}
    for row in rows:
        if row.ok and row.role != "cold" and row.payload_id in cold:
            compared.setdefault(row.role, []).append(row.answer == cold[row.payload_id])
    return {role: f"{sum(same)}/{len(same)}" for role, same in sorted(compared.items())}


def _isolation(rows: Sequence[Row]) -> Check:
    canaries = [row for row in rows if row.part == "canary"]
    return Check(
        name="isolation canary: the same tokens under another salt hit nothing",
        trials=len(canaries),
        failures=sum(row.reused or not row.ok for row in canaries),
        detail=_isolation_words(canaries) if any(row.reused for row in canaries) else "0 hits under every salt",
    )


def _isolation_words(rows: Sequence[Row]) -> str:
    warm = [
        f"{row.key} on {row.replica}: {row.local_hits or 0:,} local and {row.external_hits or 0:,} external tokens"
        f" of {row.prompt_tokens or 0:,}"
        for row in rows
        if row.part == "canary" and row.reused
    ]
    return f"refused before anything is measured: the same tokens under another salt were found ({'; '.join(warm)})"


def _checks(played: Played, plan: ServicePlan, *, exact: bool) -> list[Check]:
    rows = [row for row in played.rows if row.part in ("warmup", "plan")]
    planned = [row for row in rows if row.part == "plan"]
    first = played.rows[0].replica if played.rows else ""
    completed = _check("every request completed", rows, lambda row: not row.ok)
    unsent = len(plan.requests) + len(plan.warmups) - len(rows)
    checks = [
        replace(completed, trials=completed.trials + unsent, failures=completed.failures + unsent),
        _check("cold requests hit nothing", _role(rows, "cold"), lambda row: row.reused or _has(row, _LEAKS)),
        _check("hits as expected from the tokens", rows, lambda row: bool(row.findings)),
        _check(
            "treatment applied: shared hits where the arm promises them",
            [row for row in rows if row.expected.external_min],
            lambda row: _has(row, _SHORT),
        ),
        _check("the pool kept everything: no eviction, no allocation failure", rows, lambda row: _has(row, _POOL)),
        Check(
            name="processes alive, no voiding log line",
            trials=1,
            failures=int(bool(played.health)),
            detail="; ".join(found.detail for found in played.health[:_SHOWN]),
        ),
    ]
    if exact or any(row.verdict not in (None, "unchecked") for row in planned):
        checks += _answers(planned, first, exact=exact)
    return [check for check in checks if check.trials]


def _answers(planned: Sequence[Row], first: str, *, exact: bool) -> list[Check]:
    what = "exact values" if exact else "forced length"
    cross = _role(planned, "cross")
    parts: tuple[tuple[str, Sequence[Row]], ...] = (
        (f"{what}, cold", _role(planned, "cold")),
        (f"{what}, local reuse", _role(planned, "local")),
        (f"{what}, transferred to {first}", [row for row in cross if row.replica == first]),
        (f"{what}, transferred from {first}", [row for row in cross if row.replica != first]),
        (f"{what}, local on the receiver", _role(planned, "receiver_local")),
        (f"{what}, interleaved sessions", _role(planned, "turn")),
    )
    return [
        replace(_check(name, rows, lambda row: row.cause is not None or not row.ok), data=_wrong(rows))
        for name, rows in parts
    ]


def _wrong(rows: Sequence[Row]) -> Mapping[str, Any]:
    return {
        "wrong": [
            {"key": row.key, "replica": row.replica, "cause": row.cause, "asked": row.asked, "answer": row.answer,
             "control": row.control}
            for row in rows
            if row.cause
        ][:_SHOWN]
    }  # fmt: skip


def _check(name: str, rows: Sequence[Row], bad: Callable[[Row], bool]) -> Check:
    wrong = [row for row in rows if bad(row)]
    return Check(
        name=name, trials=len(rows), failures=len(wrong), detail="; ".join(_why(row) for row in wrong[:_SHOWN])
    )


def _why(row: Row) -> str:
    if row.cause:
        control = f"; {row.control}" if row.control else ""
        return f"{row.key}: {row.cause}, asked {row.asked}, answered {row.answer!r}{control}"
    if row.failure:
        return f"{row.key}: {row.failure}"
    return row.findings[0].detail if row.findings else row.key


def _role(rows: Iterable[Row], role: str) -> list[Row]:
    return [row for row in rows if row.role == role]


def _has(row: Row, rules: Sequence[str]) -> bool:
    return any(found.rule in rules for found in row.findings)


def _found(played: Played, rules: Sequence[str]) -> list[Finding]:
    return [found for row in played.rows for found in row.findings if found.rule in rules]


def _exposure(played: Played) -> list[tuple[int, int | None]]:
    return [(row.expected.external_min, row.external_hits) for row in played.rows if row.ok]


def _verdict(played: Played) -> str:
    causes = {row.cause for row in played.rows if row.cause}
    worst = next((cause for cause in WORST_FIRST if cause in causes), None)
    if worst in ("foreign", "transferred state"):
        return worst
    if _found(played, _LEAKS):
        return "leak"
    if _found(played, _POOL):
        return "pool too small"
    if zero_exposure("on", _exposure(played)) or _found(played, _SHORT):
        return "treatment not applied"
    if played.stopped == "dead" or played.health:
        return "engine failed"
    return worst or "counters"


def _failed_words(played: Played, verdict: str) -> str:
    if verdict == "pool too small":
        evicted = sum(row.evicted_chunks or 0 for row in played.rows)
        failed = sum(row.allocation_failures or 0 for row in played.rows)
        return f"pool too small: {evicted:,} chunks evicted, {failed:,} allocation failures"
    if verdict == "treatment not applied":
        due = [row for row in played.rows if row.ok and row.expected.external_min]
        hit = sum(bool(row.external_hits) for row in due)
        return f"treatment not applied: {hit} of {len(due)} requests that must hit the shared tier did"
    wrong = [row for row in played.rows if row.cause == verdict]
    if wrong:
        return f"{verdict}: {len(wrong)} answers. {_why(wrong[0])}"
    found = [found for row in played.rows for found in row.findings] + list(played.health)
    failed_rows = [row for row in played.rows if not row.ok]
    reason = found[0].detail if found else _why(failed_rows[0]) if failed_rows else "see the checks"
    return f"{verdict}: {reason}"


def _passed_words(plan: ServicePlan, facts: Mapping[str, Any], *, exact: bool) -> str:
    what = "every value exact" if exact else f"texts equal to cold {facts['text_equality']} (informational)"
    return (
        f"{len(plan.requests)} requests + {len(plan.warmups)} warm-ups ({plan.composition.name} set), up to"
        f" {facts['longest_prompt']:,} tokens, {facts['external_hits']:,} shared tokens hit, {what}"
    )
