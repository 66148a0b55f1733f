"""Output checks: how many answers were right, what the wrong ones were, and what the checks can and cannot prove.

A check whose answer already stands in the conversation's history does not verify that the distant prefix was
recovered; such checks are counted apart. Text equality is information: greedy text may differ by near-tie numerics
(COR-3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from harness.analysis.effects import roles
from harness.analysis.grid import Grid, Layout, grids

if TYPE_CHECKING:
    from harness.analysis.grid import BoolArray, IntArray
    from harness.model.stored import StoredRun

COLUMNS = ("ok", "verdict", "answer_sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEquality:
    """How often two texts that could be equal are."""

    compared: int
    equal: int

    @property
    def differing(self) -> int:
        """Pairs of texts that differ."""
        return self.compared - self.equal


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSummary:
    """Counts over all measured rows; `exact`, `forced` and `unchecked` partition the plan's checks."""

    exact: int
    forced: int
    unchecked: int
    by_arm: Mapping[str, Mapping[str, int]]
    """Arm (as played) → verdict → rows; `failed` where the request failed."""
    answer_in_history: int
    """Exact checks that the history could have answered: they do not verify recovery of the distant prefix."""
    verifying: int
    """Exact checks that do."""
    cold_hot: Mapping[str, TextEquality]
    """Arm → generation text cold against hot, same body, same replica."""
    cold_warm: Mapping[str, TextEquality]
    """Arm → chain text: cold against each later step of the same chain."""
    between_arms: Mapping[str, TextEquality]
    """Workload → baseline text against every treatment's (information, not a verdict)."""

    @property
    def sentence(self) -> str:
        """What the checks say, in words."""
        wrong = sum(n for counts in self.by_arm.values() for name, n in counts.items() if name not in _GOOD)
        return (
            f"{self.exact + self.forced:,} output checks ({self.exact:,} exact values, {self.forced:,} forced lengths),"
            f" {wrong:,} not passed; {self.answer_in_history:,} of the exact checks could have been answered from the"
            f" history and do not verify recovery of the distant prefix, {self.verifying:,} do."
        )


_GOOD = frozenset({"correct", "forced_ok", "unchecked"})


@dataclass(slots=True)
class _Tally:
    by_arm: dict[str, Counter[str]] = field(default_factory=dict)
    checks: Counter[str] = field(default_factory=Counter)
    history: int = 0
    texts: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def compare(self, group: str, name: str, equal: BoolArray, both: BoolArray) -> None:
        entry = self.texts.setdefault((group, name), [0, 0])
        entry[0] += int(both.sum())
        entry[1] += int((equal & both).sum())

    def equality(self, group: str) -> dict[str, TextEquality]:
        return {name: TextEquality(compared=n, equal=e) for (g, name), (n, e) in self.texts.items() if g == group}


class OutputCount:
    """Counts outputs grid by grid."""

    columns = COLUMNS

    def __init__(self, run: StoredRun, layout: Layout) -> None:
        self._tally = _Tally()
        self._baseline, _ = roles(run.plan, run.screening.baseline)
        requests = layout.requests
        self._checks = {check: np.array([r.check == check for r in requests]) for check in ("exact", "forced", "none")}
        self._history = np.array([r.answer_in_history and r.check == "exact" for r in requests])
        workloads = [request.workload for request in requests]
        self._workloads = {w: np.flatnonzero([x == w for x in workloads]) for w in dict.fromkeys(workloads)}
        self._same = _same_body(layout)

    def add(self, grid: Grid) -> None:
        """Count the rows of one grid."""
        arms = np.array([grid.layout.blocks[block.position].plays for block in grid.blocks], dtype=object)
        self._count(grid, arms)
        self._texts(grid, arms)

    def finish(self) -> OutputSummary:
        """The totals."""
        tally, exact = self._tally, self._tally.checks["exact"]
        return OutputSummary(
            exact=exact,
            forced=tally.checks["forced"],
            unchecked=tally.checks["none"],
            by_arm={arm: dict(sorted(counts.items())) for arm, counts in tally.by_arm.items()},
            answer_in_history=tally.history,
            verifying=exact - tally.history,
            cold_hot=tally.equality("cold_hot"),
            cold_warm=tally.equality("cold_warm"),
            between_arms=tally.equality("between"),
        )

    def _count(self, grid: Grid, arms: npt.NDArray[np.object_]) -> None:
        verdicts, words = grid.codes("verdict")
        ok = grid.flags("ok")
        names = [*words, "unchecked", "failed"]
        codes = np.where(verdicts < 0, len(words), verdicts)
        codes = np.where((ok.values == 1) & ok.known, codes, len(words) + 1)
        for arm in dict.fromkeys(arms.tolist()):
            here = codes[arms == arm][grid.present[arms == arm]]
            counts = self._tally.by_arm.setdefault(arm, Counter())
            for code, number in zip(*np.unique(here, return_counts=True), strict=True):
                counts[names[code]] += int(number)
        rows = grid.present.sum(axis=0)
        for check, mask in self._checks.items():
            self._tally.checks[check] += int(rows[mask].sum())
        self._tally.history += int(rows[self._history].sum())

    def _texts(self, grid: Grid, arms: npt.NDArray[np.object_]) -> None:
        codes, _ = grid.codes("answer_sha256")
        for group, cold, warm in self._same:
            for arm in dict.fromkeys(arms.tolist()):
                mine = codes[arms == arm]
                _compare(self._tally, group, arm, mine[:, cold], mine[:, warm])
        pairs = [grid.layout.blocks[block.position].pair for block in grid.blocks]
        place = {pair: i for i, (pair, arm) in enumerate(zip(pairs, arms, strict=True)) if arm == self._baseline}
        rows = [
            (place[p], i)
            for i, (p, arm) in enumerate(zip(pairs, arms, strict=True))
            if arm != self._baseline and p in place
        ]
        if rows:
            off, on = codes[[a for a, _ in rows]], codes[[b for _, b in rows]]
            for workload, keys in self._workloads.items():
                _compare(self._tally, "between", workload, off[:, keys], on[:, keys])


def output_summary(run: StoredRun) -> OutputSummary:
    """Count every measured row of every stored block."""
    layout = Layout(run.plan)
    count = OutputCount(run, layout)
    for grid in grids(run, layout, COLUMNS):
        count.add(grid)
    return count.finish()


def _compare(tally: _Tally, group: str, name: str, left: IntArray, right: IntArray) -> None:
    tally.compare(group, name, left == right, (left >= 0) & (right >= 0))


def _same_body(layout: Layout) -> list[tuple[str, IntArray, IntArray]]:
    """(group, index of the cold request, index of a later one with the same body)."""
    cold = {r.unit: i for i, r in enumerate(layout.requests) if r.role == "cold"}
    out = []
    for group, workload in (("cold_hot", "generation"), ("cold_warm", "chains")):
        pairs = [
            (cold[r.unit], i)
            for i, r in enumerate(layout.requests)
            if r.workload == workload and r.role != "cold" and r.unit in cold
        ]
        out.append(
            (group, np.array([a for a, _ in pairs], dtype=np.int64), np.array([b for _, b in pairs], dtype=np.int64))
        )
    return out
