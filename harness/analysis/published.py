"""The published figures of arXiv 2609.15021v1 as data, and a run set beside them, misses included.

Facts taken from the paper (experiment.md §5): TTFT medians of four chains a size, medians of four six-turn sessions a
cell, gains of concurrency windows. Tolerances are those of this project's acceptance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from harness.analysis.cells import EffectTable
    from harness.model.screening import Workloads

Side = Literal["off", "on"]

TTFT_S: dict[str, dict[str, tuple[float, float]]] = {
    "8k": {"cold": (1.157, 1.162), "local": (0.050, 0.052), "cross": (1.161, 0.095)},
    "32k": {"cold": (5.254, 5.265), "local": (0.181, 0.184), "cross": (5.252, 0.221)},
    "128k": {"cold": (31.755, 31.774), "local": (0.484, 0.492), "cross": (31.715, 0.605)},
    "256k": {"cold": (92.108, 92.188), "local": (0.557, 0.574), "cross": (92.047, 0.790)},
}
"""size → role → (OFF, ON) median in s."""
SESSION_S: dict[str, dict[str, tuple[float, float, float]]] = {
    "32k": {"fixed": (10.706, 10.742, 0.36), "alternating": (16.708, 10.821, -35.26)},
    "128k": {"fixed": (40.465, 40.605, 0.34), "alternating": (73.220, 40.553, -44.61)},
}
"""initial size → placement → (OFF median s, ON median s, mean paired change %)."""
SESSION_PAIRS_PCT: dict[str, tuple[float, float]] = {"32k": (-35.21, -35.30), "128k": (-44.58, -44.64)}
"""Alternating sessions: mean paired change of each of the two block pairs, %."""
WINDOW_GAIN_PCT: dict[str, dict[int, float]] = {"alternating": {4: 87.0, 8: 78.0}, "fixed": {4: 0.0, 8: 0.0}}
"""placement → sessions at once → change of output tokens/s, %; fixed is published as `within −0.4 %`."""
DECODE_RANGE_PCT = (-0.82, 0.16)
"""Change of the decode rate over all generation cells, %."""

SESSION_TURNS = 6
WINDOW_TURNS = 4

TTFT_TOLERANCE_PCT = 5.0
SESSION_TOLERANCE_PCT = 5.0
WINDOW_TOLERANCE_POINTS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One published figure beside the measured one."""

    group: Literal["ttft", "session", "session_change", "window", "decode"]
    label: str
    cell_id: str
    side: Side | None
    """off or on for a median, None for a change."""
    unit: str
    published: float
    measured: float | None
    """None where the run does not have this cell."""
    deviation: float | None
    """% of the published figure for medians, points for changes."""
    tolerance: float | None
    """In the same unit; None where the acceptance names none."""

    @property
    def within(self) -> bool | None:
        """True where the deviation is inside the tolerance; None where either is missing."""
        if self.deviation is None or self.tolerance is None:
            return None
        return abs(self.deviation) <= self.tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Everything side by side."""

    lines: tuple[Line, ...]

    @property
    def misses(self) -> tuple[Line, ...]:
        """Lines outside their tolerance."""
        return tuple(line for line in self.lines if line.within is False)

    @property
    def compared(self) -> int:
        """Lines with a measured figure and a tolerance."""
        return sum(line.within is not None for line in self.lines)

    @property
    def sentence(self) -> str:
        """How many figures lie within their tolerance."""
        if not self.compared:
            return "This run has none of the published cells."
        words = f"{self.compared - len(self.misses)} of {self.compared} published figures within tolerance"
        return f"{words}; misses: {', '.join(line.label for line in self.misses)}." if self.misses else f"{words}."


def beside_published(table: EffectTable, workloads: Workloads, treatment: str | None = None) -> Published:
    """Set a run beside the published figures. A cell that the run lacks stays in the list, without a figure.

    Sessions and windows are compared only where the declaration has the paper's number of turns; an A/A screening has
    no published counterpart at all.
    """
    if table.aa:
        return Published(lines=())
    sessions, windows = workloads.sessions, workloads.concurrency
    return Published(
        lines=(
            *_ttft(table, treatment),
            *(_sessions(table, treatment) if sessions and sessions.turns == SESSION_TURNS else ()),
            *(_windows(table, treatment) if windows and windows.turns == WINDOW_TURNS else ()),
            *_decode(table, treatment),
        )
    )


def _ttft(table: EffectTable, treatment: str | None) -> Iterator[Line]:
    for size, roles in TTFT_S.items():
        for role, figures in roles.items():
            cell, label = f"ttft/{size}/{role}", f"TTFT {size} {role}"
            yield from _medians(table, treatment, cell=cell, label=label, group="ttft", figures=figures)


def _sessions(table: EffectTable, treatment: str | None) -> Iterator[Line]:
    for size, placements in SESSION_S.items():
        for placement, (off, on, change) in placements.items():
            cell, label = f"session_wall/{size}/{placement}", f"session {size} {placement}"
            yield from _medians(table, treatment, cell=cell, label=label, group="session", figures=(off, on))
            label = f"{label}, change"
            yield _change(
                table, treatment, cell=cell, label=label, group="session_change", published=change, tolerance=None
            )


def _windows(table: EffectTable, treatment: str | None) -> Iterator[Line]:
    for placement, windows in WINDOW_GAIN_PCT.items():
        for count, gain in windows.items():
            cell = f"window_throughput/32k/{placement}/{count}"
            label = f"{count} {placement} sessions at once"
            label += " (published: within −0.4 %)" if placement == "fixed" else ""
            tolerance = WINDOW_TOLERANCE_POINTS
            yield _change(table, treatment, cell=cell, label=label, group="window", published=gain, tolerance=tolerance)


def _decode(table: EffectTable, treatment: str | None) -> Iterator[Line]:
    """The published range of decode-rate changes over all cells, beside the range that was measured."""
    effects = table.of_metric("decode_rate", treatment or (table.treatments[0] if table.treatments else None))
    changes = [effect.mean_change_pct for effect in effects if math.isfinite(effect.mean_change_pct)]
    ends = (("lowest", DECODE_RANGE_PCT[0], min), ("highest", DECODE_RANGE_PCT[1], max))
    for word, published, end in ends if changes else ():
        measured = end(changes)
        yield Line(
            group="decode", label=f"decode rate, {word} change of {len(changes)} cells", cell_id="decode_rate",
            side=None, unit="%", published=published, measured=measured, deviation=measured - published,
            tolerance=None,
        )  # fmt: skip


def _medians(
    table: EffectTable,
    treatment: str | None,
    *,
    cell: str,
    label: str,
    group: Literal["ttft", "session"],
    figures: tuple[float, float],
) -> Iterator[Line]:
    effect = table.find(cell, treatment)
    seen = (None, None) if effect is None or not effect.units else (effect.baseline_median, effect.treated_median)
    tolerance = TTFT_TOLERANCE_PCT if group == "ttft" else SESSION_TOLERANCE_PCT
    sides: tuple[Side, Side] = ("off", "on")
    for side, published, measured in zip(sides, figures, seen, strict=True):
        deviation = None if measured is None else 100 * (measured / published - 1)
        yield Line(
            group=group, label=f"{label}, {side.upper()}", cell_id=cell, side=side, unit="s", published=published,
            measured=measured, deviation=deviation, tolerance=tolerance,
        )  # fmt: skip


def _change(
    table: EffectTable,
    treatment: str | None,
    *,
    cell: str,
    label: str,
    group: Literal["session_change", "window"],
    published: float,
    tolerance: float | None,
) -> Line:
    effect = table.find(cell, treatment)
    measured = None if effect is None or not effect.units else effect.mean_change_pct
    deviation = None if measured is None else measured - published
    return Line(
        group=group, label=label, cell_id=cell, side=None, unit="%", published=published, measured=measured,
        deviation=deviation, tolerance=tolerance,
    )  # fmt: skip
