"""Effects: matched units nested in block pairs, compared as ON/OFF, with the block pair as the unit of inference.

Only units that the audit left in the estimate are used. Nothing falls back to unpaired means: a unit without its
partner is counted as excluded and does not appear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis.cells import Effect, EffectTable, Observations, PairEffect
from harness.analysis.grid import Grid, Layout, grids
from harness.analysis.metrics import COLUMNS, Series, series, values
from harness.analysis.signflip import LEAST_PAIRS, SEED, SignFlip, sign_flips, too_few

if TYPE_CHECKING:
    from harness.analysis.grid import BoolArray, FloatArray
    from harness.model.findings import Verdict
    from harness.model.planned import Plan
    from harness.model.stored import StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Every metric of every block: for each series one array (blocks, units), NaN where it must not be used."""

    layout: Layout
    series: tuple[Series, ...]
    values: tuple[FloatArray, ...]
    positions: tuple[int, ...]
    """Block positions, one a row of the arrays."""
    left: BoolArray
    """(blocks, units of the layout): the unit left the estimate."""


class Gathering:
    """Collects the metrics of grids one by one, so that rows are read once for audit, effects and outputs."""

    columns = COLUMNS

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._series = series(layout)
        self._parts: list[list[FloatArray]] = [[np.zeros((0, len(one.units)))] for one in self._series]
        self._missing: list[BoolArray] = [np.zeros((0, len(layout.units)), dtype=np.bool_)]
        self._positions: list[int] = []

    def add(self, grid: Grid) -> None:
        """Take the metrics of one grid."""
        for part, figures in zip(self._parts, values(grid, self._series), strict=True):
            part.append(figures)
        self._missing.append(grid.layout.per_unit(grid.planned & ~grid.present))
        self._positions.extend(block.position for block in grid.blocks)

    def finish(self, verdict: Verdict) -> Measured:
        """Everything gathered, without what the verdict excludes."""
        left = np.concatenate(self._missing)
        gone = _gone(verdict, self.layout)
        for i, position in enumerate(self._positions):
            mask = gone.get(self.layout.blocks[position].pair)
            if mask is not None:
                left[i] |= mask
        tables = tuple(np.concatenate(part) for part in self._parts)
        for table, one in zip(tables, self._series, strict=True):
            table[left[:, one.units]] = np.nan
        return Measured(
            layout=self.layout, series=self._series, values=tables, positions=tuple(self._positions), left=left
        )


def measure(run: StoredRun, verdict: Verdict) -> Measured:
    """Read every block once and keep its metrics; units that left the estimate are NaN."""
    gathering = Gathering(Layout(run.plan))
    for grid in grids(run, gathering.layout, COLUMNS):
        gathering.add(grid)
    return gathering.finish(verdict)


def effects(
    run: StoredRun,
    verdict: Verdict,
    *,
    measured: Measured | None = None,
    floors: Mapping[str, Any] | None = None,
    seed: int = SEED,
) -> EffectTable:
    """The effect of every treatment in every cell. `floors`: the store of A/A noise floors (see `floors`), if any."""
    seen = measured or measure(run, verdict)
    baseline, treatments = roles(run.plan, run.screening.baseline)
    found: list[Effect] = []
    for treatment in treatments:
        rows = _pair_rows(seen.layout, seen.positions, baseline, treatment)
        found.extend(_tested([_describe(seen, i, rows, baseline, treatment) for i in range(len(seen.series))], seed))
    if floors is not None:
        # Imported here because floors are themselves made from effect tables.
        from harness.analysis.floors import floor_for  # noqa: PLC0415

        found = [
            replace(e, floor=floor_for(floors, run, e.cell, pairs=e.pairs, arms=(e.baseline, e.treatment)))
            for e in found
        ]
    uneven = next((f.detail for f in verdict.findings if f.rule == "audit.failure_rates"), None)
    return EffectTable(
        screening=run.screening.name,
        run=run.run,
        status=verdict.status,
        aa=run.plan.aa,
        baseline=baseline,
        treatments=treatments,
        effects=tuple(found),
        inconclusive=uneven,
    )


def roles(plan: Plan, declared_baseline: str) -> tuple[str, tuple[str, ...]]:
    """(baseline, treatments) as played, treatments in order of first appearance."""
    played = tuple(dict.fromkeys(block.plays for block in plan.blocks))
    baseline = declared_baseline if declared_baseline in played else played[0]
    return baseline, tuple(arm for arm in played if arm != baseline)


@dataclass(frozen=True, slots=True)
class _PairRow:
    """Where the two blocks of a pair stand in the arrays."""

    pair: int
    baseline: int
    treated: int
    offset: int


def _pair_rows(layout: Layout, positions: Sequence[int], baseline: str, treatment: str) -> list[_PairRow]:
    place: dict[tuple[int, str], int] = {}
    for row, position in enumerate(positions):
        block = layout.blocks[position]
        place[(block.pair, block.plays)] = row
    out = []
    for pair in dict.fromkeys(block.pair for block in layout.blocks.values()):
        off, on = place.get((pair, baseline)), place.get((pair, treatment))
        if off is not None and on is not None:
            out.append(_PairRow(pair, off, on, positions[on] - positions[off]))
    return out


def _describe(seen: Measured, index: int, rows: Sequence[_PairRow], baseline: str, treatment: str) -> Effect:
    """Everything about one cell but the test."""
    one = seen.series[index]
    table = seen.values[index]
    off = table[[row.baseline for row in rows]]
    on = table[[row.treated for row in rows]]
    used = np.isfinite(off) & np.isfinite(on) & (off > 0) & (on > 0)
    gone = int((~used).sum())
    per_pair = _per_pair(rows, off, on, used)
    pairs, columns = np.nonzero(used)
    numbers = np.array([row.pair for row in rows], dtype=np.int64)
    names = np.array(one.names, dtype=object)
    observations = Observations(pair=numbers[pairs], unit=names[columns], baseline=off[used], treated=on[used])
    nothing = len(observations) == 0
    return Effect(
        cell=one.cell,
        baseline=baseline,
        treatment=treatment,
        units=len(observations),
        pairs=len(per_pair),
        excluded_units=gone,
        baseline_median=float("nan") if nothing else float(np.median(observations.baseline)),
        treated_median=float("nan") if nothing else float(np.median(observations.treated)),
        mean_change_pct=float("nan")
        if nothing
        else float(np.mean(100 * (observations.treated / observations.baseline - 1))),
        per_pair=per_pair,
        estimate_pct=float("nan") if nothing else _pct(float(np.mean([p.log_ratio for p in per_pair]))),
        low_pct=None,
        high_pct=None,
        no_interval=too_few(len(per_pair)),
        p_value=None,
        p_plain=None,
        drift_pct=None,
        method=None,
        observations=observations,
    )


def _per_pair(rows: Sequence[_PairRow], off: FloatArray, on: FloatArray, used: BoolArray) -> tuple[PairEffect, ...]:
    """Means within each pair over its used units; pairs without one are left out."""
    safe_off, safe_on = np.where(used, off, 1.0), np.where(used, on, 1.0)
    counts = used.sum(axis=1)
    units = np.maximum(counts, 1)
    change = np.where(used, 100 * (safe_on / safe_off - 1), 0.0).sum(axis=1) / units
    # ln(on) - ln(off), not ln(on/off): swapping the arms then flips the sign exactly.
    ratio = (np.log(safe_on) - np.log(safe_off)).sum(axis=1) / units
    return tuple(
        PairEffect(
            pair=row.pair,
            units=int(counts[i]),
            change_pct=float(change[i]),
            log_ratio=float(ratio[i]),
            offset=row.offset,
        )
        for i, row in enumerate(rows)
        if counts[i]
    )


def _tested(described: Sequence[Effect], seed: int) -> list[Effect]:
    """Add test and interval where there are enough pairs; cells with the same pairs are tested together."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, effect in enumerate(described):
        if effect.pairs >= LEAST_PAIRS:
            groups.setdefault(tuple(p.pair for p in effect.per_pair), []).append(i)
    out = list(described)
    for members in groups.values():
        d = np.array([[p.log_ratio for p in described[i].per_pair] for i in members])
        x = np.array([p.offset for p in described[members[0]].per_pair], dtype=np.float64)
        for i, result in zip(members, sign_flips(d, x, seed=seed), strict=True):
            out[i] = _with_test(described[i], result)
    return out


def _with_test(effect: Effect, result: SignFlip) -> Effect:
    return replace(
        effect,
        estimate_pct=_pct(result.estimate),
        low_pct=_pct(result.low),
        high_pct=_pct(result.high),
        no_interval=None,
        p_value=result.p_value,
        p_plain=result.p_plain,
        drift_pct=None if result.drift is None else _pct(result.drift),
        method=result.method,
    )


def _pct(log_ratio: float) -> float:
    return 100 * float(np.expm1(log_ratio))


def _gone(verdict: Verdict, layout: Layout) -> dict[int, BoolArray]:
    """Pair → mask over units that left the estimate."""
    numbers = {unit: i for i, unit in enumerate(layout.units)}
    out: dict[int, BoolArray] = {}
    for unit in verdict.excluded_units:
        mask = out.setdefault(unit.pair, np.zeros(len(layout.units), dtype=np.bool_))
        if unit.unit == "*":
            mask[:] = True
        elif unit.unit in numbers:
            mask[numbers[unit.unit]] = True
    return out
