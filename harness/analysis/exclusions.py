"""What leaves the estimate: rows that are no measurement take their whole unit and its partners with them.

Strategy: each cell of the grid gets the first rule that speaks against it (0 = none). A unit leaves in all arms of
its pair as soon as one of its cells has a rule, is missing, or stands in a void block. Rows in = paired + excluded,
where the two are counted separately and compared (`audit.arithmetic`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from harness.model.findings import ExcludedUnit, Verdict

if TYPE_CHECKING:
    from harness.analysis.grid import BoolArray, Grid, IntArray
    from harness.model.findings import Finding
    from harness.model.planned import PlannedBlock

COLUMNS = ("ok", "verdict", "first_content_ns", "client_limited", "sim_missed", "excluded")

REASONS = (
    "",
    "answer.foreign",
    "answer.transfer_suspect",
    "row.failed",
    "row.unparsable",
    "row.wrong",
    "row.drift",
    "row.forced_length",
    "row.no_content",
    "row.client_limited",
    "row.sim_missed",
    "audit.row_missing",
)
"""Reasons by code, the worst first; others that a run recorded follow behind."""

_BY_VERDICT = {
    "foreign": "answer.foreign",
    "transfer_suspect": "answer.transfer_suspect",
    "unparsable": "row.unparsable",
    "wrong": "row.wrong",
    "drift": "row.drift",
    "forced_wrong_length": "row.forced_length",
}


@dataclass(slots=True)
class Tally:
    """What the exclusions of all grids add up to."""

    rows: int = 0
    paired: int = 0
    excluded: int = 0
    units: list[ExcludedUnit] = field(default_factory=list)
    failures: dict[str, dict[str, int]] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    """Arm (as played) → rows."""


def reasons(grid: Grid) -> tuple[IntArray, tuple[str, ...]]:
    """(codes of shape (blocks, keys), names by code): why each present cell must not enter a statistic, 0 = it may."""
    names = list(REASONS)
    out = np.zeros(grid.shape, dtype=np.int64)
    _put(out, _texts_where(grid, "excluded", names), names)
    missed, content = grid.ints("sim_missed"), grid.ints("first_content_ns")
    _put(out, (missed.known & (missed.values > 0), "row.sim_missed"), names)
    limited, _ = grid.codes("client_limited")
    _put(out, (limited >= 0, "row.client_limited"), names)
    ok = grid.flags("ok")
    good = ok.known & (ok.values == 1)
    _put(out, (good & ~content.known, "row.no_content"), names)
    verdicts, words = grid.codes("verdict")
    for verdict, rule_id in _BY_VERDICT.items():
        if verdict in words:
            _put(out, (verdicts == words.index(verdict), rule_id), names)
    foreign_or_suspect = np.isin(out, (1, 2))
    _put(out, (~good & ~foreign_or_suspect, "row.failed"), names)
    out[~grid.present] = 0
    return out, tuple(names)


def exclude(
    grid: Grid,
    planned: Sequence[PlannedBlock],
    void: Mapping[int, Finding],
    roles: tuple[str, tuple[str, ...]],
    tally: Tally,
) -> None:
    """Account for every row of the grid. `planned[i]` is the plan of the grid's block i, `void` the void positions."""
    codes, names = reasons(grid)
    _count_failures(codes, names, grid, planned, tally)
    missing = names.index("audit.row_missing")
    codes = np.where(grid.planned & ~grid.present, missing, codes)
    pairs = np.array([block.pair for block in planned], dtype=np.int64)
    unit = grid.layout.unit_of_key
    for pair in dict.fromkeys(pairs.tolist()):
        members = np.flatnonzero(pairs == pair)
        here = grid.present[members]
        tally.rows += int(grid.rows_in[members].sum())
        spare = int(grid.rows_in[members].sum()) - int(here.sum())
        whole = _whole_pair(members, planned, void, roles)
        if whole is not None:
            left = int(here.sum())
            tally.units.append(_whole_unit(pair, whole, left))
            tally.excluded += left + spare
            continue
        bad = codes[members] != 0
        gone: BoolArray = np.any(grid.layout.per_unit(bad), axis=0)
        leaves = np.asarray(gone[unit], dtype=np.bool_)
        tally.paired += int(here[:, ~leaves].sum())
        tally.excluded += int(here[:, leaves].sum()) + spare
        for number in np.flatnonzero(gone):
            tally.units.append(_one_unit(grid, planned, codes, names, members=members, number=int(number)))


def exclusion_counts(verdict: Verdict) -> dict[str, dict[str, int]]:
    """Rule → arm that caused it → units that left (with their partners)."""
    out: dict[str, dict[str, int]] = {}
    for unit in verdict.excluded_units:
        by_arm = out.setdefault(unit.rule, {})
        by_arm[unit.arm] = by_arm.get(unit.arm, 0) + 1
    return out


def _texts_where(grid: Grid, column: str, names: list[str]) -> tuple[BoolArray, IntArray]:
    """(where the column says a rule, its code); rules not yet known get a code of their own."""
    codes, words = grid.codes(column)
    for word in words:
        if word not in names:
            names.append(word)
    table = np.array([*(names.index(word) for word in words), 0], dtype=np.int64)
    return codes >= 0, table[codes]


def _put(out: IntArray, what: tuple[BoolArray, str | IntArray], names: list[str]) -> None:
    where, value = what
    code = names.index(value) if isinstance(value, str) else value[where]
    out[where] = code


def _count_failures(
    codes: IntArray, names: tuple[str, ...], grid: Grid, planned: Sequence[PlannedBlock], tally: Tally
) -> None:
    for i, block in enumerate(planned):
        tally.measured[block.plays] = tally.measured.get(block.plays, 0) + int(grid.present[i].sum())
        for code, count in zip(*np.unique(codes[i][codes[i] > 0], return_counts=True), strict=True):
            mine = tally.failures.setdefault(block.plays, {})
            mine[names[code]] = mine.get(names[code], 0) + int(count)


@dataclass(frozen=True, slots=True)
class _Cause:
    rule: str
    arm: str
    block: int


def _whole_pair(
    members: IntArray,
    planned: Sequence[PlannedBlock],
    void: Mapping[int, Finding],
    roles: tuple[str, tuple[str, ...]],
) -> _Cause | None:
    """Why the pair as a whole cannot be compared, or None."""
    for i in members.tolist():
        block = planned[i]
        if block.position in void:
            return _Cause(void[block.position].rule, block.plays, block.position)
    baseline, treatments = roles
    played = {planned[i].plays for i in members.tolist()}
    if baseline not in played or not played & set(treatments):
        first = planned[members[0]]
        return _Cause("audit.unpaired", first.plays, first.position)
    return None


def _whole_unit(pair: int, cause: _Cause, rows: int) -> ExcludedUnit:
    return ExcludedUnit(pair=pair, unit="*", rule=cause.rule, arm=cause.arm, block=cause.block, key=None, rows=rows)


def _one_unit(
    grid: Grid,
    planned: Sequence[PlannedBlock],
    codes: IntArray,
    names: tuple[str, ...],
    *,
    members: IntArray,
    number: int,
) -> ExcludedUnit:
    keys = np.flatnonzero(grid.layout.unit_of_key == number)
    part = codes[np.ix_(members, keys)]
    worst = int(part[part > 0].min())
    row, column = np.argwhere(part == worst)[0]
    block = planned[members[row]]
    return ExcludedUnit(
        pair=block.pair,
        unit=grid.layout.units[number],
        rule=names[worst],
        arm=block.plays,
        block=block.position,
        key=grid.layout.keys[keys[column]],
        rows=int(grid.present[np.ix_(members, keys)].sum()),
    )
