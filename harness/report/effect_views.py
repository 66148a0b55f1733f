"""Effects as table rows: medians, every observation with a link to its request, changes, floors, intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.analysis.metrics import role_label
from harness.model.stored import StoredRun
from harness.report.drilldown import Ident
from harness.report.numbers import DASH, NARROW, percent, rate, seconds

if TYPE_CHECKING:
    from harness.analysis.cells import Cell, Effect

OBSERVATIONS = 60
"""Observations listed in one table cell; the rest is counted, and every one stands in the statistics' CSV."""

PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCell:
    """Median of one arm and its observations as (text, anchor or None)."""

    median: str
    observations: tuple[tuple[str, str | None], ...]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Mean paired change of one arm; `arm` is empty where there is only one treatment."""

    arm: str
    mean: str
    interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    """One cell of a metric: `cells` holds the baseline first."""

    labels: tuple[str, ...]
    cells: tuple[ArmCell, ...]
    changes: tuple[Change, ...]
    floor: str
    again: bool
    """The first label is that of the row above."""
    count: str
    error: str


class Links:
    """From an observation (block pair, unit, cell) to the anchor of the request it was measured on."""

    def __init__(self, run: StoredRun, anchors: Mapping[Ident, str]) -> None:
        self._anchors = anchors
        self._steps: dict[tuple[str, str], str] = {}
        self._first: dict[str, str] = {}
        seen: set[int] = set()
        for block in run.plan.blocks:
            if id(block.requests) in seen:
                continue
            seen.add(id(block.requests))
            for request in block.requests:
                self._steps.setdefault((request.unit, role_label(request)), request.key)
                self._first.setdefault(request.unit, request.key)

    def key(self, unit: str, cell: Cell) -> str | None:
        """The request that carries the cell's metric; of a session or window, its first request."""
        return self._steps.get((unit, cell.role)) if cell.role else self._first.get(unit)

    def anchor(self, pair: int, unit: str, cell: Cell) -> str | None:
        """The anchor, or None where the page does not hold that pair."""
        key = self.key(unit, cell)
        return None if key is None else self._anchors.get((pair, key))


def number(value: float) -> float | None:
    """None instead of NaN: a cell without observations has no median."""
    return None if math.isnan(value) else value


def formatter(cell: Cell) -> Callable[[float | None], str]:
    """How values of that cell are written."""
    return seconds if cell.unit == "s" else rate


def rows(
    found: Sequence[Effect],
    links: Links,
    *,
    labels: Callable[[Cell], tuple[str, ...]],
    errors: Mapping[str, str] | None = None,
) -> tuple[EffectRow, ...]:
    """Effects of one metric as rows, the treatments of a cell side by side."""
    by_cell: dict[Cell, list[Effect]] = {}
    for effect in found:
        by_cell.setdefault(effect.cell, []).append(effect)
    found_rows: list[EffectRow] = []
    for cell, effects in by_cell.items():
        above = found_rows[-1].labels[0] if found_rows else None
        error = (errors or {}).get(cell.id, DASH)
        found_rows.append(_row(cell, effects, links, labels=labels(cell), above=above, error=error))
    return tuple(found_rows)


def floor_text(effect: Effect) -> str:
    """`±1.10 %`, or a dash where no A/A screening of this fingerprint is known."""
    return DASH if effect.floor is None else f"{PLUS_MINUS}{effect.floor.pct:.2f}{NARROW}%"


def interval_text(effect: Effect) -> str:
    """`95 %: −36.1 … −34.2 %`; empty where there is none."""
    if effect.low_pct is None or effect.high_pct is None:
        return ""
    return f"95{NARROW}%: {percent(effect.low_pct)} … {percent(effect.high_pct)}"


def _row(
    cell: Cell, effects: Sequence[Effect], links: Links, *, labels: tuple[str, ...], above: str | None, error: str
) -> EffectRow:
    write = formatter(cell)
    first = effects[0]
    baseline = _arm_cell(
        first.baseline_median,
        [(pair, unit, off) for pair, unit, off, _ in first.observations],
        cell,
        links,
        write,
    )
    treated = [
        _arm_cell(
            effect.treated_median, [(pair, unit, on) for pair, unit, _, on in effect.observations], cell, links, write
        )
        for effect in effects
    ]
    several = len(effects) > 1
    return EffectRow(
        labels=labels,
        cells=(baseline, *treated),
        changes=tuple(
            Change(
                arm=effect.treatment if several else "",
                mean=percent(number(effect.mean_change_pct)),
                interval=interval_text(effect),
            )
            for effect in effects
        ),
        floor=" / ".join(dict.fromkeys(floor_text(effect) for effect in effects if effect.floor)),
        again=labels[0] == above,
        count=_count(first),
        error=error,
    )


def _count(effect: Effect) -> str:
    text = f"{effect.units:,} / {effect.pairs:,}"
    return f"{text} (−{effect.excluded_units:,})" if effect.excluded_units else text


def _arm_cell(
    median: float,
    observed: Sequence[tuple[int, str, float]],
    cell: Cell,
    links: Links,
    write: Callable[[float | None], str],
) -> ArmCell:
    listed = observed[:OBSERVATIONS]
    return ArmCell(
        median=write(number(median)),
        observations=tuple((write(value), links.anchor(pair, unit, cell)) for pair, unit, value in listed),
        more=len(observed) - len(listed),
    )
