"""Totals of a plan: the numbers an experimenter checks before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from harness.model.planned import Plan
from harness.model.screening import Screening


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts over all blocks unless a name says `per_block`."""

    blocks: int
    block_pairs: int
    """Groups of blocks that are compared: pairs, or palindrome halves with more than two arms."""
    measured_per_block: int
    warmups_per_block: int
    measured: int
    warmups: int
    request_pairs: int
    """Measured requests of every treatment block that face one of the baseline's in the same group."""
    distinct_payloads: int
    """Measured bodies with their own SHA-256; the blocks of a group share them."""
    fixture_files: int
    """Measured bodies as kept beside the results: each block keeps its own copy."""
    warmup_files: int
    exact_checks: int
    forced_checks: int
    unchecked: int
    answer_in_history: int
    """Checks of the answer that the history could also answer: they do not verify recovery of the distant prefix."""
    by_workload: Mapping[str, int]
    """Measured requests of one block per workload."""
    units_per_block: int


def totals(plan: Plan, screening: Screening) -> Totals:
    """Count the plan of this screening; ValueError where the two do not belong together."""
    if plan.screening != screening.name:
        raise ValueError(f"plan of {plan.screening!r} and screening {screening.name!r} do not belong together")
    pairs = {block.pair for block in plan.blocks}
    requests = [request for block in plan.blocks for request in block.requests]
    checks = Counter(request.check for request in requests)
    first = plan.blocks[0]
    distinct = {request.payload_id for request in requests}
    return Totals(
        blocks=len(plan.blocks),
        block_pairs=len(pairs),
        measured_per_block=len(first.requests),
        warmups_per_block=len(first.warmups),
        measured=len(requests),
        warmups=sum(len(block.warmups) for block in plan.blocks),
        request_pairs=len(requests) - sum(_baseline_requests(plan, pair, screening) for pair in pairs),
        distinct_payloads=len(distinct),
        fixture_files=sum(len({request.payload_id for request in block.requests}) for block in plan.blocks),
        warmup_files=sum(len({request.payload_id for request in block.warmups}) for block in plan.blocks),
        exact_checks=checks["exact"],
        forced_checks=checks["forced"],
        unchecked=checks["none"],
        answer_in_history=sum(request.answer_in_history for request in requests),
        by_workload=dict(Counter(request.workload for request in first.requests)),
        units_per_block=len({request.unit for request in first.requests}),
    )


def _baseline_requests(plan: Plan, pair: int, screening: Screening) -> int:
    """Measured requests of the one block of this group that plays the baseline."""
    return sum(len(block.requests) for block in plan.blocks if block.pair == pair and block.plays == screening.baseline)
