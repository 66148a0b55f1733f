"""How many block pairs resolve a given percentage: from the spread of an A/A run or of an earlier screening.

The spread is the standard deviation σ of the paired differences d_p (log scale) of one cell. Power of the two-sided
95 % sign-flip interval for an effect θ = ln(1 + percent/100) with n pairs: simulated with normal errors up to n = 8
(the test itself, 4,000 seeded draws), above that a noncentral t with n − 2 degrees of freedom (mean and drift), which
agrees with the simulation within 2 points (tests/unit/analysis/test_power.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from harness.analysis.signflip import LEAST_PAIRS, SEED, intervals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.analysis.cells import Cell, Effect, EffectTable

MOST_PAIRS = 400
_SIMULATED_PAIRS = 8
_DRAWS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviation of paired differences on the log scale, and how well it is known."""

    sd: float
    freedom: int
    """Degrees of freedom it rests on."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Block pairs needed in one cell."""

    cell: Cell
    treatment: str
    percent: float
    power: float
    spread: Spread
    pairs: int | None
    """None where more than `MOST_PAIRS` would be needed."""
    blocks: int | None
    predicted: float | None
    """Power with that many pairs."""
    pairs_if_unlucky: int | None
    """The same with the upper 80 % limit of the spread, which was itself estimated from few pairs."""
    assumptions: str


def power(n: int, percent: float, sd: float) -> float:
    """Probability that the 95 % interval over n block pairs excludes 0 when the true change is `percent`. 0 to 1."""
    if n < LEAST_PAIRS:
        return 0.0
    if sd == 0:
        return 1.0 if percent else 0.0
    size = abs(math.log1p(percent / 100)) / sd
    if n <= _SIMULATED_PAIRS:
        low, high = _simulated(n)
        return float(np.mean((low + size > 0) | (high + size < 0)))
    freedom, centre = n - 2, size * math.sqrt(n)
    edge = float(stats.t.ppf(0.975, freedom))
    exact = float(stats.nct.sf(edge, freedom, centre) + stats.nct.cdf(-edge, freedom, centre))
    if math.isfinite(exact):
        return exact
    # The library's noncentral t gives NaN far from 0; there the usual normal approximation is as good.
    spread_of_t = math.sqrt(1 + edge**2 / (2 * freedom))
    return float(stats.norm.sf((edge * (1 - 1 / (4 * freedom)) - centre) / spread_of_t))


def pairs_needed(percent: float, sd: float, *, target: float = 0.8) -> int | None:
    """The smallest even number of block pairs (whole palindromes) with at least that power; None above 400."""
    for n in range(LEAST_PAIRS, MOST_PAIRS + 1, 2):
        if power(n, percent, sd) >= target:
            return n
    return None


def needs(table: EffectTable, percent: float, *, target: float = 0.8) -> tuple[Need, ...]:
    """Block pairs needed to resolve `percent` in every cell of an A/A run or an earlier screening."""
    if percent <= -100 or percent == 0:
        raise ValueError(f"a change of {percent} % cannot be resolved: give one above -100 that is not 0")
    return tuple(need for effect in table.effects if (need := _need(effect, percent, target, aa=table.aa)) is not None)


def spread(effect: Effect, *, aa: bool) -> Spread | None:
    """σ of the paired differences; None where it cannot be estimated (one pair of an ON/OFF screening, or none)."""
    d = np.array([p.log_ratio for p in effect.per_pair])
    x = np.array([p.offset for p in effect.per_pair], dtype=np.float64)
    n = len(d)
    if n >= LEAST_PAIRS and np.ptp(x) > 0:
        design = np.column_stack([np.ones(n), x])
        residual = d - design @ np.linalg.lstsq(design, d, rcond=None)[0]
        return Spread(
            sd=math.sqrt(residual @ residual / (n - 2)), freedom=n - 2, words="mean and linear drift taken out"
        )
    if aa and n >= 1:
        return Spread(sd=math.sqrt(d @ d / n), freedom=n, words="A/A: the true mean is 0, drift counted as noise")
    if n >= 2:
        return Spread(sd=float(np.std(d, ddof=1)), freedom=n - 1, words="mean taken out, drift counted as noise")
    return None


def _need(effect: Effect, percent: float, target: float, *, aa: bool) -> Need | None:
    known = spread(effect, aa=aa)
    if known is None:
        return None
    pairs = pairs_needed(percent, known.sd, target=target)
    unlucky = known.sd * math.sqrt(known.freedom / float(stats.chi2.ppf(0.2, known.freedom)))
    return Need(
        cell=effect.cell,
        treatment=effect.treatment,
        percent=percent,
        power=target,
        spread=known,
        pairs=pairs,
        blocks=None if pairs is None else 2 * pairs,
        predicted=None if pairs is None else power(pairs, percent, known.sd),
        pairs_if_unlucky=pairs_needed(percent, unlucky, target=target),
        assumptions=_assumptions(effect, known, percent, target),
    )


def _assumptions(effect: Effect, known: Spread, percent: float, target: float) -> str:
    noise = f"σ = {100 * math.expm1(known.sd):.2f} %, {known.words}, {known.freedom} degrees of freedom"
    return (
        f"Block pairs are independent, differ by the same noise as the {effect.pairs} seen here ({noise}), with normal"
        f" errors and linear drift over block positions; a change of {percent:+g} % is to be told from 0 by the 95 %"
        f" sign-flip interval in {100 * target:g} % of screenings; the cell keeps its"
        f" {effect.units // max(effect.pairs, 1)} units a pair."
    )


@lru_cache(maxsize=8)
def _simulated(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Interval limits of standard normal samples without effect; an effect shifts both by itself."""
    draws = np.random.default_rng((SEED, n)).normal(size=(_DRAWS, n))
    x = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    low, high, _ = intervals(draws, x)
    return low, high


def in_words(found: Sequence[Need]) -> str:
    """One sentence a cell: how many pairs, or that it is out of reach."""
    lines = []
    for need in found:
        if need.pairs is None:
            lines.append(f"{need.cell.label}: more than {MOST_PAIRS} block pairs for {need.percent:+g} %")
        else:
            unlucky = f", {need.pairs_if_unlucky} if the spread was underestimated" if need.pairs_if_unlucky else ""
            lines.append(
                f"{need.cell.label}: {need.pairs} block pairs ({need.blocks} blocks) for {need.percent:+g} %{unlucky}"
            )
    return "\n".join(lines)
