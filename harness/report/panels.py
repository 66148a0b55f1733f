"""The figures of a screening, from its effects: series, groups, and words for those who cannot see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from harness.model.stored import StoredRun
from harness.report.effect_views import Links, formatter, number
from harness.report.numbers import percent
from harness.report.plots import Series, SlopeGroup, log_limits, log_panel, size_positions, slope_panel
from harness.report.svg import Mark

if TYPE_CHECKING:
    from harness.analysis.cells import Cell, Effect, EffectTable, Metric

_DODGE = 0.05
"""Arms stand side by side by this share of the size axis' length / 2, so that equal values hide nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure with its caption; `svg` is markup that this project drew."""

    title: str
    note: str
    svg: Markup


_LOCALITIES = (("cold", "Cold"), ("local", "Local (first reuse)"), ("cross", "Cross replica"))


class Figures:
    """Draws the figures of one screening."""

    def __init__(self, run: StoredRun, table: EffectTable, links: Links) -> None:
        self._table = table
        self._links = links
        self._arms = (table.baseline, *table.treatments)
        self._tokens = {request.size: request.nominal_tokens for request in run.plan.blocks[0].requests}

    def ttft(self) -> tuple[Panel, ...]:
        """Figure (a) of the paper: TTFT against size on log axes that share their limits, one panel a locality."""
        every = [effect for effect in self._table.of_metric("ttft") if effect.units]
        shown = {role: [effect for effect in every if effect.cell.role == role] for role, _ in _LOCALITIES}
        values = [v for effects in shown.values() for e in effects for _, _, *both in e.observations for v in both]
        limits = log_limits(values)
        return tuple(self._ttft(role, title, shown[role], limits) for role, title in _LOCALITIES if shown[role])

    def slopes(
        self,
        metric: Metric,
        *,
        panel_of: Callable[[Cell], str],
        group_of: Callable[[Cell], str],
    ) -> tuple[Panel, ...]:
        """Figure (b) of the paper and its relatives: a panel for each `panel_of`, slopes for each cell and arm."""
        grouped: dict[str, list[Effect]] = {}
        for effect in self._table.of_metric(metric):
            if effect.units:
                title = panel_of(effect.cell)
                title += f", {effect.treatment}" if len(self._arms) > 2 else ""
                grouped.setdefault(title, []).append(effect)
        panels = []
        for index, (title, effects) in enumerate(grouped.items()):
            svg = slope_panel(
                name=f"{metric}-{index}".replace("_", "-"),
                title=title,
                desc=_describe(effects),
                groups=[self._group(effect, group_of(effect.cell)) for effect in effects],
                arms=self._arms,
                unit=effects[0].cell.unit,
            )
            panels.append(_panel(title, svg))
        return tuple(panels)

    def _ttft(self, role: str, title: str, effects: Sequence[Effect], limits: tuple[float, float]) -> Panel:
        ticks = size_positions(list({effect.cell.size: self._tokens[effect.cell.size] for effect in effects}.items()))
        svg = log_panel(
            name=f"ttft-{role}",
            title=f"TTFT, {title.lower()}",
            desc=_describe(effects),
            series=[self._series(index, effects, ticks) for index in range(len(self._arms))],
            ticks=ticks,
            limits=limits,
        )
        return _panel(title, svg)

    def _series(self, index: int, effects: Sequence[Effect], ticks: Sequence[tuple[float, str]]) -> Series:
        """One arm; the baseline's values stand beside every treatment, so they are taken from the first."""
        own = [effect for effect in effects if effect.treatment == self._arms[index or 1]]
        dodge = _DODGE * max(ticks[-1][0] - ticks[0][0], 1.0) / 2 * (index - (len(self._arms) - 1) / 2)
        at = {label: position + dodge for position, label in ticks}
        marks = [
            self._mark(effect, pair, unit, on if index else off, x=at[effect.cell.size], arm=index)
            for effect in own
            for pair, unit, off, on in effect.observations
        ]
        medians = [(at[e.cell.size], e.treated_median if index else e.baseline_median) for e in own]
        return Series(arm=index, name=f"arm-{index}", marks=tuple(marks), medians=tuple(medians))

    def _group(self, effect: Effect, label: str) -> SlopeGroup:
        arm = self._arms.index(effect.treatment)
        pairs = tuple(
            (self._mark(effect, pair, unit, off, arm=0), self._mark(effect, pair, unit, on, arm=arm))
            for pair, unit, off, on in effect.observations
        )
        return SlopeGroup(label=label, arm=arm, pairs=pairs, medians=(effect.baseline_median, effect.treated_median))

    def _mark(self, effect: Effect, pair: int, unit: str, value: float, *, arm: int, x: float = 0.0) -> Mark:
        cell = effect.cell
        anchor = self._links.anchor(pair, unit, cell)
        label = f"{self._arms[arm]}: {formatter(cell)(value)} {cell.unit} ({unit}, block pair {pair})"
        return Mark(x=x, y=value, label=label, href=f"#{anchor}" if anchor else None)


def _panel(title: str, svg: str) -> Panel:
    return Panel(title=title, note="", svg=Markup(svg))  # noqa: S704 - drawn, and its text escaped, by ElementTree


def _describe(effects: Sequence[Effect]) -> str:
    """The figure in words: medians and changes of every cell."""
    parts = []
    for effect in effects:
        write, unit = formatter(effect.cell), effect.cell.unit
        parts.append(
            f"{effect.cell.label}: median {effect.baseline} {write(number(effect.baseline_median))} {unit}, "
            f"{effect.treatment} {write(number(effect.treated_median))} {unit}, "
            f"mean paired change {percent(number(effect.mean_change_pct))} over {effect.units} pairs.",
        )
    return " ".join(parts)
