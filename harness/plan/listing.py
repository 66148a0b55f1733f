"""A plan as rows, text and JSON, for people and for scripts; nothing here touches a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import orjson

from harness.model.planned import Plan, PlannedBlock, PlannedRequest
from harness.model.screening import Reach, Screening
from harness.plan.totals import Totals, totals

_TOTAL_LABELS: Mapping[str, str] = {
    "blocks": "blocks",
    "block_pairs": "block pairs",
    "measured_per_block": "measured requests a block",
    "warmups_per_block": "warm-ups a block",
    "measured": "measured requests",
    "warmups": "warm-ups, stored apart, in no statistic",
    "request_pairs": "ON/OFF request pairs",
    "distinct_payloads": "distinct payload digests",
    "fixture_files": "retained fixture files",
    "warmup_files": "warm-up fixture files, stored apart",
    "exact_checks": "exact-value checks",
    "forced_checks": "forced-length checks",
    "unchecked": "requests without an output check",
    "answer_in_history": "checks whose answer already stands in the history",
    "units_per_block": "matched units a block",
}


def describe(request: PlannedRequest, reach: Reach = "all") -> str:
    """One line: where it goes, what it is, what it must find in an arm of that reach, and how it is checked."""
    checks = {"exact": "exact answer", "forced": f"exactly {request.forced_tokens} tokens", "none": "no output check"}
    history = ", answer in history" if request.answer_in_history else ""
    found = finds(request, reach)
    return f"{request.key} → {request.replica}: {request.role}, {found}; {checks[request.check]}{history}"


def finds(request: PlannedRequest, reach: Reach) -> str:
    """What the request must find in an arm of that reach: whose prefix locally, whose beyond it in a tier.

    Numbers follow once the fixtures are counted: local hits are whole blocks, external hits whole chunks.
    """
    held = {"none": (), "replica": request.after_same_replica, "all": request.after_any_replica}[reach]
    local = f"prefix of {_last(request.after_same_replica)}" if request.after_same_replica else "0"
    beyond = held[len(held) - 1 :] if held != request.after_same_replica else ()
    external = f"chunks of {_last(beyond)}" if beyond else "0"
    return f"local {local}, external {external}"


def _last(payload_ids: Sequence[str]) -> str:
    """The last of the payload ids, which is the longest of its conversation, without its pair."""
    return payload_ids[-1].partition("/")[2]


def request_rows(plan: Plan, screening: Screening, *, block: int | None = None) -> Iterator[dict[str, object]]:
    """A row a request, in sending order; `block` is a 1-based position. ValueError where there is no such block."""
    for chosen in _chosen(plan, block):
        reach = screening.arm(chosen.arm).reach
        for request in (*chosen.warmups, *chosen.requests):
            place = {"block": chosen.position, "arm": chosen.arm, "plays": chosen.plays}
            yield {**place, **asdict(request), "expectation": finds(request, reach)}


def totals_rows(plan: Plan, screening: Screening) -> list[tuple[str, int]]:
    """(label, count) in reading order."""
    counted = asdict(totals(plan, screening))
    rows = [(label, counted[name]) for name, label in _TOTAL_LABELS.items()]
    return rows + [(f"{name} requests a block", count) for name, count in sorted(counted["by_workload"].items())]


def totals_text(plan: Plan, screening: Screening) -> str:
    """The totals as an aligned table, and the plan's digest."""
    rows = totals_rows(plan, screening)
    width = max(len(f"{count:,}") for _, count in rows)
    lines = [f"{count:>{width},}  {label}" for label, count in rows]
    order = " ".join(f"{block.arm}" for block in plan.blocks)
    return "\n".join([f"plan {plan.screening}: {order}", *lines, f"plan digest {plan.digest}"])


def totals_json(plan: Plan, screening: Screening) -> bytes:
    """The totals as JSON, with the names of `Totals` and both digests."""
    counted: Totals = totals(plan, screening)
    document = {"screening": plan.screening, "declaration": screening.digest, "plan": plan.digest, **asdict(counted)}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def requests_text(plan: Plan, screening: Screening, *, block: int | None = None) -> Iterator[str]:
    """Lines of a table of requests, header first."""
    yield f"{'blk':>3} {'arm':<8} {'seq':>4} {'to':<4} {'role':<14} {'nominal':>7} {'key':<38} expects"
    for row in request_rows(plan, screening, block=block):
        yield (
            f"{row['block']:>3} {row['arm']:<8} {row['seq']:>4} {row['replica']:<4} {row['role']:<14} "
            f"{row['nominal_tokens']:>7} {row['key']:<38} {row['expectation']}"
        )


def requests_json(plan: Plan, screening: Screening, *, block: int | None = None) -> bytes:
    """Every request row as a JSON array."""
    return orjson.dumps(list(request_rows(plan, screening, block=block)), option=orjson.OPT_INDENT_2)


def _chosen(plan: Plan, position: int | None) -> tuple[PlannedBlock, ...]:
    if position is None:
        return plan.blocks
    found = tuple(block for block in plan.blocks if block.position == position)
    if not found:
        raise ValueError(f"block {position} does not exist: the plan has blocks 1 to {len(plan.blocks)}")
    return found
