"""What is left to do in a run's folder: half-done pairs are superseded and rerun whole, finished pairs stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson

from harness.model.errors import ConfigError, Issue
from harness.run.preflight import stored_capacity
from harness.store.folder import block_name
from harness.store.writer import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.model.planned import Plan, PlannedBlock
    from harness.run.ports import Capacity
    from harness.store.folder import RunFolder

RESUMABLE = frozenset({"open", "running", "interrupted", "deadline", "not_started", "failed"})
"""States of a run that may go on; `running` without a lock holder means that the harness was killed."""


def refuse_unless_resumable(folder: RunFolder, digest: str) -> None:
    """ConfigError where the run is finished, was voided, or belongs to another declaration."""
    header = folder.header()
    status = str(header.get("status"))
    if status not in RESUMABLE:
        words = f"run {folder.run} is {status} and cannot be resumed"
        allowed = f"a new screening that names it: --follows {folder.run}" if status == "void" else "a new run"
        raise ConfigError(str(folder.path), [Issue(path="run", message=words, allowed=allowed)])
    if header.get("declaration_digest") != digest:
        words = "the declaration has changed since the run began"
        raise ConfigError(str(folder.path), [Issue(path="declaration", message=words, allowed="a new run")])


def remaining(folder: RunFolder, plan: Plan) -> tuple[PlannedBlock, ...]:
    """Blocks without a commit, in order."""
    done = {(entry.position, entry.arm) for entry in folder.committed()}
    return tuple(block for block in plan.blocks if (block.position, block.arm) not in done)


def supersede_half_pairs(folder: RunFolder, plan: Plan, at: str, *, keep_open_pair: bool = False) -> list[str]:
    """Archive every block of a pair that is not whole; returns the names of what was moved.

    `keep_open_pair` keeps committed blocks of such a pair (a screening driven block by block) and moves leftovers only.
    """
    moved: list[str] = []
    missing = {block.pair for block in remaining(folder, plan)}
    for block in plan.blocks:
        if block.pair not in missing:
            continue
        if keep_open_pair and (block.position, block.arm) not in folder.leftovers():
            continue
        reason = {
            "rule": "run.superseded_block",
            "detail": f"pair {block.pair} was half done when the run ended; it is rerun whole",
            "at": at,
            "block": block.position,
            "arm": block.arm,
            "pair": block.pair,
        }
        moved.extend(path.name for path in folder.supersede(block.position, block.arm, reason))
    return moved


def known_capacity(folder: RunFolder) -> Mapping[str, Capacity] | None:
    """Cache capacity of the first committed block, None where there is none."""
    return next(_capacities(folder), None)


def _capacities(folder: RunFolder) -> Iterator[Mapping[str, Capacity]]:
    for entry in folder.committed():
        path = folder.path / "blocks" / block_name(entry.position, entry.arm) / MANIFEST
        yield stored_capacity(orjson.loads(path.read_bytes()))
