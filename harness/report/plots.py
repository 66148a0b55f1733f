"""The figures: log-scale panels of TTFT against size, and OFF → ON slopes of paired units.

Drawn with matplotlib's SVG back end on a `Figure` of its own (no global state), then themed by `harness.report.svg`.
Each panel is one small SVG; the page lays panels out side by side or below one another, so that text keeps its size.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from harness.report.numbers import axis_seconds
from harness.report.svg import ARM_INKS, LINKED_MARKS, Ink, Mark, themed

_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text: searchable, and set in the page's own font
    "svg.hashsalt": "kvabba",  # the same figure gives the same bytes
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "axes.unicode_minus": True,
    "font.size": 10.5,
    "axes.edgecolor": Ink.MUTED,
    "axes.labelcolor": Ink.MUTED,
    "text.color": Ink.INK,
    "xtick.color": Ink.MUTED,
    "ytick.color": Ink.MUTED,
    "axes.linewidth": 0.7,
    "path.simplify": False,
}
_MARKERS = ("o", "D", "^", "s")
"""One shape an arm, so that colour is never the only difference; the baseline's is drawn hollow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One arm in a panel: observations (y in the panel's unit) and the medians that the line joins."""

    arm: int
    """Index of the arm: 0 is the baseline."""
    name: str
    marks: tuple[Mark, ...]
    medians: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlopeGroup:
    """One cell of a slope panel: every pair is a thin line from the baseline's value to the arm's."""

    label: str
    arm: int
    pairs: tuple[tuple[Mark, Mark], ...]
    medians: tuple[float, float] | None


def log_panel(
    *,
    name: str,
    title: str,
    desc: str,
    series: Sequence[Series],
    ticks: Sequence[tuple[float, str]],
    limits: tuple[float, float],
) -> str:
    """TTFT in seconds on a log axis against prompt size (`ticks`: position and label of each size)."""
    with mpl.rc_context(_SETTINGS):
        figure, axes = _panel(width=360, height=290, left=54)
        axes.set_yscale("log")
        axes.set_ylim(*limits)
        few = limits[1] / limits[0] < 200  # under some two decades, powers of ten alone would be too few to read by
        axes.yaxis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: axis_seconds(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        _size_axis(axes, ticks)
        marks: dict[str, Sequence[Mark]] = {}
        for entry in series:
            _median_line(axes, entry)
            marks |= _observations(axes, f"{entry.name}-{entry.arm}", entry.arm, entry.marks)
        return _finish(figure, name=name, title=title, desc=desc, marks=marks)


def slope_panel(
    *,
    name: str,
    title: str,
    desc: str,
    groups: Sequence[SlopeGroup],
    arms: Sequence[str],
    unit: str,
) -> str:
    """Paired values, baseline → arm, cell beside cell on one linear axis from 0."""
    with mpl.rc_context(_SETTINGS):
        figure, axes = _panel(width=max(250, 130 * len(groups) + 70), height=240, left=52)
        top = max((mark.y for group in groups for pair in group.pairs for mark in pair), default=1.0)
        axes.set_ylim(0, top * 1.12 or 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylabel(unit)
        marks: dict[str, Sequence[Mark]] = {}
        for index, group in enumerate(groups):
            marks |= _slopes(axes, index, group)
        axes.set_xlim(-0.55, 2 * len(groups) - 0.45)
        axes.xaxis.set_major_locator(FixedLocator([2 * i + side for i in range(len(groups)) for side in (0.0, 1.0)]))
        axes.set_xticklabels([arms[arm] for group in groups for arm in (0, group.arm)])
        for index, group in enumerate(groups):
            axes.text(2 * index + 0.5, top * 1.06, group.label, ha="center", va="bottom", color=Ink.INK, fontsize=10.5)
        return _finish(figure, name=name, title=title, desc=desc, marks=marks)


def log_limits(values: Sequence[float]) -> tuple[float, float]:
    """Limits of a log axis that hold every positive value with a little air; (0.1, 10) where there is none."""
    positive = [value for value in values if value > 0]
    if not positive:
        return (0.1, 10.0)
    return (min(positive) / 1.6, max(positive) * 1.6)


def size_positions(sizes: Sequence[tuple[str, int]]) -> list[tuple[float, str]]:
    """Positions on the size axis: log2 of the tokens, or even steps where two sizes would come too close."""
    ordered = sorted(sizes, key=lambda size: size[1])
    positions = [math.log2(tokens) if tokens > 0 else 0.0 for _, tokens in ordered]
    span = positions[-1] - positions[0] if positions else 0.0
    gaps = [after - before for before, after in pairwise(positions)]
    if gaps and min(gaps) < 0.12 * span:
        positions = [float(index) for index in range(len(ordered))]
    return [(position, label) for position, (label, _) in zip(positions, ordered, strict=True)]


def _panel(*, width: float, height: float, left: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width / 72, height / 72))
    FigureCanvasSVG(figure)
    right, bottom, top = 8.0, 30.0, 10.0
    box = (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    axes: Axes = figure.add_axes(box)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_facecolor("none")
    axes.grid(axis="y", color=Ink.RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=3, width=0.7, color=Ink.MUTED, labelcolor=Ink.MUTED)
    return figure, axes


def _size_axis(axes: Axes, ticks: Sequence[tuple[float, str]]) -> None:
    positions = [position for position, _ in ticks]
    pad = 0.09 * max(positions[-1] - positions[0], 1.0) if positions else 1.0
    axes.set_xlim((positions[0] if positions else 0.0) - pad, (positions[-1] if positions else 1.0) + pad)
    axes.xaxis.set_major_locator(FixedLocator(positions))
    axes.set_xticklabels([label for _, label in ticks])


def _median_line(axes: Axes, entry: Series) -> None:
    if not entry.medians:
        return
    xs, ys = zip(*entry.medians, strict=True)
    dashes = (0, (4, 2.5)) if entry.arm == 0 else "solid"
    axes.plot(xs, ys, color=ARM_INKS[entry.arm % 4], linewidth=1.5, linestyle=dashes, zorder=3)


def _observations(axes: Axes, gid: str, arm: int, marks: Sequence[Mark]) -> dict[str, Sequence[Mark]]:
    if not marks:
        return {}
    ink = ARM_INKS[arm % 4]
    drawn = axes.scatter(
        [mark.x for mark in marks],
        [mark.y for mark in marks],
        s=32 if len(marks) <= LINKED_MARKS else 6,
        marker=_MARKERS[arm % 4],
        facecolors=Ink.PAPER if arm == 0 else ink,
        edgecolors=ink,
        linewidths=1.3,
        zorder=4,
        clip_on=False,
    )
    drawn.set_gid(f"obs-{gid}")
    return {f"obs-{gid}": marks}


def _slopes(axes: Axes, index: int, group: SlopeGroup) -> dict[str, Sequence[Mark]]:
    left, right = 2.0 * index, 2.0 * index + 1
    ink = ARM_INKS[group.arm % 4]
    thin = 0.9 if len(group.pairs) <= LINKED_MARKS else 0.25
    xs: list[float] = []
    ys: list[float] = []
    for baseline, other in group.pairs:  # one polyline with gaps instead of one artist a pair
        xs += [left, right, math.nan]
        ys += [baseline.y, other.y, math.nan]
    axes.plot(xs, ys, color=Ink.MUTED, linewidth=thin, zorder=2)
    placed: dict[str, Sequence[Mark]] = {}
    for side, arm, x in ((0, 0, left), (1, group.arm, right)):
        marks = [Mark(x=x, y=pair[side].y, label=pair[side].label, href=pair[side].href) for pair in group.pairs]
        placed |= _observations(axes, f"{index}-{side}", arm, marks)
    if group.medians is not None:
        for x, median, edge in ((left, group.medians[0], Ink.ARM_0), (right, group.medians[1], ink)):
            axes.plot([x - 0.3, x + 0.3], [median, median], color=edge, linewidth=2.4, zorder=5)
    return placed


def _finish(figure: Figure, *, name: str, title: str, desc: str, marks: Mapping[str, Sequence[Mark]]) -> str:
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return themed(buffer.getvalue(), name=name, title=title, desc=desc, marks=marks)
