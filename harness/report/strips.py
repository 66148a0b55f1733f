"""Small strips in a table: one cell's change per block pair, its mean, its interval and the A/A noise floor.

The axis is an inverse hyperbolic sine of the percentage: linear within about ±1 %, logarithmic beyond, so that an
effect of −45 % and a floor of ±0.5 % are both readable on one scale that every row shares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from harness.report.numbers import MINUS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.analysis.cells import Effect

WIDTH, HEIGHT = 240.0, 27.0
_TICKS = (-99.0, -50.0, -10.0, -1.0, 0.0, 1.0, 10.0, 100.0)
_TICK_RANK = {tick: rank for rank, tick in enumerate((0.0, -99.0, 10.0, -10.0, 100.0, 1.0, -1.0, -50.0))}
"""Which label stays where two would touch."""
_PAIRS_DRAWN = 100


class Strips:
    """Strips with one common axis for all effects given."""

    def __init__(self, effects: Sequence[Effect]) -> None:
        values = [0.0, -1.0, 1.0]
        for effect in effects:
            values += [pair.change_pct for pair in effect.per_pair]
            if effect.floor is not None:
                values += [effect.floor.pct, -effect.floor.pct]
        self._low, self._high = _warp(min(values)), _warp(max(values))

    def axis(self) -> Markup:
        """The head of the column: ticks in percent."""
        inside: list[float] = []
        for tick in sorted((t for t in _TICKS if self._low <= _warp(t) <= self._high), key=_TICK_RANK.__getitem__):
            if all(abs(self._x(tick) - self._x(other)) > 20 for other in inside):
                inside.append(tick)
        return _svg(14, [f'<text x="{self._x(tick):.1f}" y="11">{_tick(tick)}</text>' for tick in inside])

    def draw(self, effect: Effect) -> Markup:
        """One row's strip. It repeats what the row says in numbers, so it is hidden from assistive technology."""
        parts = [
            f'<path class="tick" d="M{self._x(tick):.1f} 2V25"/>'
            for tick in _TICKS
            if tick and self._low <= _warp(tick) <= self._high
        ]
        if effect.floor is not None:
            left, right = self._x(-effect.floor.pct), self._x(effect.floor.pct)
            parts.append(f'<rect class="floor" x="{left:.1f}" width="{right - left:.1f}" y="4" height="19"/>')
        parts.append(f'<path class="zero" d="M{self._x(0):.1f} 1V26"/>')
        if effect.low_pct is not None and effect.high_pct is not None:
            parts.append(
                f'<path class="interval" d="M{self._x(effect.low_pct):.1f} 13.5H{self._x(effect.high_pct):.1f}"/>'
            )
        parts += [
            f'<circle class="pair" cx="{self._x(pair.change_pct):.1f}" cy="13.5" r="3.6"/>'
            for pair in effect.per_pair[:_PAIRS_DRAWN]
        ]
        if effect.units:
            parts.append(f'<path class="mean" d="M{self._x(effect.mean_change_pct):.1f} 6V21"/>')
        return _svg(HEIGHT, parts)

    def _x(self, percent: float) -> float:
        share = (_warp(percent) - self._low) / (self._high - self._low)
        return 8 + (WIDTH - 16) * min(max(share, 0.0), 1.0)


def _svg(height: float, parts: Iterable[str]) -> Markup:
    """A strip of parts that hold numbers only."""
    text = f'<svg class="strip" viewBox="0 0 {WIDTH:g} {height:g}" aria-hidden="true">{"".join(parts)}</svg>'
    return Markup(text)  # noqa: S704 - made of this module's own numbers


def _warp(percent: float) -> float:
    return math.asinh(percent)


def _tick(value: float) -> str:
    return f"{value:g}".replace("-", MINUS)
