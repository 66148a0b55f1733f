"""A whole screening: its blocks in order, the deadline between them, and how it ended in the run's header."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.model.errors import (
    DeadlineError,
    EngineError,
    HarnessError,
    InterruptedRun,
    VoidBlock,
)
from harness.run.block import BlockResult, run_block
from harness.run.canary import check_salts
from harness.run.context import Setting
from harness.run.resuming import known_capacity

if TYPE_CHECKING:
    from harness.model.planned import PlannedBlock

_STATUS: tuple[tuple[type[BaseException], str], ...] = (
    (VoidBlock, "void"),
    (DeadlineError, "deadline"),
    (InterruptedRun, "interrupted"),
    (asyncio.CancelledError, "interrupted"),
    (EngineError, "not_started"),
)


async def run_screening(
    setting: Setting, blocks: Sequence[PlannedBlock], *, last: str = "complete"
) -> list[BlockResult]:
    """Run the blocks in order; the header ends with `last` (`open` for a screening driven block by block).

    Raises whatever ended the run early, after the header says so: LeakError, VoidBlock, EngineError, DeadlineError.
    """
    payloads = [setting.fixtures.payload(payload.payload_id) for payload in setting.plan.payloads]
    check_salts(payloads, salted=setting.screening.request.salt)
    setting.folder.amend(status="running")
    try:
        results = await _run_all(setting, blocks)
    except BaseException as error:
        setting.folder.amend(
            status=next((status for kind, status in _STATUS if isinstance(error, kind)), "failed"),
            exit_code=int(error.exit_code) if isinstance(error, HarnessError) else None,
            ended_utc=setting.clock.utc(),
        )
        raise
    setting.folder.amend(status=last, ended_utc=setting.clock.utc())
    return results


async def _run_all(setting: Setting, blocks: Sequence[PlannedBlock]) -> list[BlockResult]:
    capacity = known_capacity(setting.folder)
    began_ns = setting.clock.now_ns()
    results = []
    for block in blocks:
        _check_deadline(setting, block, began_ns)
        result = await run_block(setting, block, capacity)
        capacity = capacity or result.capacity
        results.append(result)
    if blocks:
        setting.pace.report(blocks[-1], "done")
    return results


def _check_deadline(setting: Setting, block: PlannedBlock, began_ns: int) -> None:
    deadline_s = setting.screening.deadline_s
    spent_s = (setting.clock.now_ns() - began_ns) / 1e9
    if deadline_s is not None and spent_s >= deadline_s:
        words = f"{spent_s:,.0f} s spent, the deadline is {deadline_s:,.0f} s: block {block.position} was not begun"
        hint = f"Go on with `kvabba run {setting.screening.name} --resume {setting.folder.run}`."
        raise DeadlineError(words, hint=hint)
