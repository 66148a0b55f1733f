"""From stamps to figures: every metric of experiment.md §4, per block and matched unit, simulated time scaled.

scaled seconds = ns / 1e9 / time_scale, here and in the report's drill-down only. The time scale, role and unit of a
row come from the plan, never from the row; the durations from stamps, never from derived columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.cells import UNITS, Cell, Metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.analysis.grid import FloatArray, Grid, IntArray, Layout
    from harness.model.planned import PlannedRequest

COLUMNS = (
    "start_ns",
    "connected_ns",
    "first_content_ns",
    "last_content_ns",
    "done_ns",
    "recorded_ns",
    "completion_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Where the units of one cell stand: `keys` index single requests, or `units` index whole units."""

    cell: Cell
    names: tuple[str, ...]
    """Unit names, one a column."""
    units: IntArray
    """Index of each unit in the layout, one a column."""
    keys: IntArray | None
    """Index of the request that carries the metric; None where the metric belongs to the unit as a whole."""


def series(layout: Layout) -> tuple[Series, ...]:
    """Every cell of the plan in the order people read: by metric, size, forced length, sessions at once, placement.

    The plan's own order inside a block is drawn; roles follow each other as their requests do.
    """
    found: dict[Cell, dict[int, int]] = {}
    for index, request in enumerate(layout.requests):
        for cell in _cells(request, layout):
            found.setdefault(cell, {}).setdefault(int(layout.unit_of_key[index]), index)
    whole = ("session_wall", "window_throughput")
    return tuple(
        Series(
            cell=cell,
            names=tuple(layout.units[unit] for unit in places),
            units=np.array(list(places), dtype=np.int64),
            keys=None if cell.metric in whole else np.array(list(places.values()), dtype=np.int64),
        )
        for cell, places in sorted(found.items(), key=lambda item: _reading_order(item[0], layout, item[1]))
    )


def _reading_order(cell: Cell, layout: Layout, places: Mapping[int, int]) -> tuple[int, int, int, int, bool]:
    tokens = layout.requests[next(iter(places.values()))].nominal_tokens
    metric = list(UNITS).index(cell.metric)
    return metric, tokens, cell.output, cell.sessions, cell.placement != "fixed"


def values(grid: Grid, wanted: tuple[Series, ...]) -> list[FloatArray]:
    """One array (blocks, units of the cell) a series, NaN where the metric does not exist."""
    figures = _Figures(grid)
    tables = {metric: figures.of(metric) for metric in {s.cell.metric for s in wanted}}
    return [tables[s.cell.metric][:, s.units if s.keys is None else s.keys] for s in wanted]


def role_label(request: PlannedRequest) -> str:
    """Role of a chain step; local reuse counts as `local` the first time only, later ones stand apart (`local-2`)."""
    return request.step if request.role == "local" and request.step != "local-1" else request.role


def _cells(request: PlannedRequest, layout: Layout) -> tuple[Cell, ...]:
    size = request.size
    if request.workload == "chains":
        role = role_label(request)
        return (Cell(metric="ttft", size=size, role=role), Cell(metric="ttft_after_connect", size=size, role=role))
    if request.workload == "generation":
        return (Cell(metric="decode_rate", size=size, role=request.role, output=request.forced_tokens or 0),)
    placement = request.placement or ""
    if request.workload == "sessions":
        return (Cell(metric="session_wall", size=size, placement=placement),)
    count = len({r.session for r in layout.requests if r.unit == request.unit}) if request.window else 0
    return (Cell(metric="window_throughput", size=size, placement=placement, sessions=count),)


class _Figures:
    """The metrics of one grid; each is computed once."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._scale = np.array([r.time_scale for r in grid.layout.requests])

    def of(self, metric: Metric) -> FloatArray:
        """(blocks, keys), or (blocks, units) for sessions and windows."""
        if metric == "ttft":
            return self._seconds("start_ns", "first_content_ns")
        if metric == "ttft_after_connect":
            return self._seconds("connected_ns", "first_content_ns")
        if metric == "decode_rate":
            return self._decode_rate()
        return self._session_wall() if metric == "session_wall" else self._throughput()

    def _seconds(self, begin: str, end: str) -> FloatArray:
        """End − begin in scaled seconds. Differences are taken between integers, before any float."""
        first, last = self._grid.ints(begin), self._grid.ints(end)
        both = first.known & last.known
        return np.where(both, (last.values - first.values) / 1e9 / self._scale, np.nan)

    def _decode_rate(self) -> FloatArray:
        """(N_out − 1) / (t_last − t_first) in tokens per scaled second; NaN below two tokens."""
        window = self._seconds("first_content_ns", "last_content_ns")
        tokens = self._grid.ints("completion_tokens")
        exists = tokens.known & (tokens.values >= 2) & (window > 0)
        return np.where(exists, (tokens.values - 1) / np.where(exists, window, 1.0), np.nan)

    def _session_wall(self) -> FloatArray:
        """Sum over turns of (row recorded − request start): fixtures, scrapes and gaps between turns are not in it."""
        turns = self._seconds("start_ns", "recorded_ns")
        total = np.zeros((len(self._grid.blocks), len(self._grid.layout.units)))
        np.add.at(total.T, self._grid.layout.unit_of_key, turns.T)
        return total

    def _throughput(self) -> FloatArray:
        """Output tokens of the window / (last [DONE] − first start), in tokens per scaled second."""
        grid, unit = self._grid, self._grid.layout.unit_of_key
        start, done, tokens = grid.ints("start_ns"), grid.ints("done_ns"), grid.ints("completion_tokens")
        shape = (len(grid.layout.units), len(grid.blocks))
        begin, end = np.full(shape, np.iinfo(np.int64).max), np.full(shape, np.iinfo(np.int64).min)
        np.minimum.at(begin, unit, start.values.T)
        np.maximum.at(end, unit, done.values.T)
        output = np.zeros(shape)
        np.add.at(output, unit, np.where(tokens.known, tokens.values, 0).T)
        known = np.ones(shape, dtype=np.bool_)
        np.logical_and.at(known, unit, (start.known & done.known & tokens.known).T)
        scale = np.ones(shape[0])
        scale[unit] = self._scale
        span = (end - begin) / 1e9 / scale[:, None]
        exists = known & (span > 0)
        return np.where(exists, output / np.where(exists, span, 1.0), np.nan).T
