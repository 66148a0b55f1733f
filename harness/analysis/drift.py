"""Drift from block position: the same arm, the same units, early against late within each palindrome.

In OFF-ON-ON-OFF the two OFF blocks stand three positions apart (OFF₁ against OFF₄), the two ON blocks one (ON₂
against ON₃). Drift = mean over units of ln(late/early) / (positions apart), as percent per block position. The bodies
of the two blocks differ in their namespaces (not in kind), and generations swap replicas between pairs: a difference
between replicas shows up as drift in those cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.effects import Measured, measure

if TYPE_CHECKING:
    from harness.analysis.cells import Cell
    from harness.analysis.grid import FloatArray
    from harness.model.findings import Verdict
    from harness.model.stored import StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Drift of one arm in one cell."""

    cell: Cell
    arm: str
    """As played."""
    early: tuple[int, ...]
    """Position of the early block of each palindrome …"""
    late: tuple[int, ...]
    """… and of the late one."""
    per_palindrome_pct: tuple[float, ...]
    """Percent per block position, one a palindrome."""
    pct_per_block: float
    """Their mean."""
    units: int
    early_median: float
    late_median: float

    @property
    def label(self) -> str:
        """`off: block 1 against 4`."""
        spans = ", ".join(f"{a} against {b}" for a, b in zip(self.early[:3], self.late[:3], strict=True))
        return f"{self.arm}: block {spans}{', …' if len(self.early) > 3 else ''}"


def drift(run: StoredRun, verdict: Verdict, *, measured: Measured | None = None) -> tuple[Drift, ...]:
    """Drift of every arm in every cell that has two comparable blocks, in the order of the plan."""
    seen = measured or measure(run, verdict)
    spans = _spans(seen)
    out = []
    for one, table in zip(seen.series, seen.values, strict=True):
        for arm, places in spans.items():
            found = _one(one.cell, arm, table, places, seen.positions)
            if found is not None:
                out.append(found)
    return tuple(out)


def _spans(seen: Measured) -> dict[str, list[tuple[int, int]]]:
    """Arm → (row of the early block, row of the late block) of each palindrome, i.e. of pairs 1 and 2, 3 and 4."""
    rows: dict[tuple[str, int], list[int]] = {}
    for row, position in enumerate(seen.positions):
        block = seen.layout.blocks[position]
        rows.setdefault((block.plays, (block.pair - 1) // 2), []).append(row)
    out: dict[str, list[tuple[int, int]]] = {}
    for (arm, _), members in rows.items():
        if len(members) == 2:
            early, late = sorted(members, key=lambda row: seen.positions[row])
            out.setdefault(arm, []).append((early, late))
    return out


def _one(
    cell: Cell, arm: str, table: FloatArray, places: list[tuple[int, int]], positions: tuple[int, ...]
) -> Drift | None:
    rows = np.array(places)
    early, late = table[rows[:, 0]], table[rows[:, 1]]
    both = np.isfinite(early) & np.isfinite(late) & (early > 0) & (late > 0)
    kept = both.any(axis=1)
    if not kept.any():
        return None
    where = np.array(positions)
    first, last = where[rows[:, 0]][kept], where[rows[:, 1]][kept]
    ratio = np.log(np.where(both, late, 1.0)) - np.log(np.where(both, early, 1.0))
    slopes = ratio[kept].sum(axis=1) / both[kept].sum(axis=1) / (last - first)
    return Drift(
        cell=cell,
        arm=arm,
        early=tuple(first.tolist()),
        late=tuple(last.tolist()),
        per_palindrome_pct=tuple((100 * np.expm1(slopes)).tolist()),
        pct_per_block=100 * float(np.expm1(slopes.mean())),
        units=int(both.sum()),
        early_median=float(np.median(early[both])),
        late_median=float(np.median(late[both])),
    )
