"""Does the method keep its word? Made-up screenings with known effect, noise and drift, through its own test.

One simulated screening: 2n blocks in palindromes OFF-ON-ON-OFF. Block b at position k has the log level g·(k − 1) +
e_b, with drift g per position and e_b normal with standard deviation σ/√2, so that a paired difference has the noise
σ; ON blocks are higher by θ = ln(1 + effect). The study counts how often the 95 % interval covers θ, how often it
excludes 0, and what `power` predicted for that. `predict_from` > 0 lets `power` see only the spread that an A/A run
of that many block pairs under the same noise and drift would have shown, averaged over as many A/A runs as
screenings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.analysis.power import power
from harness.analysis.signflip import LEAST_PAIRS, FloatArray, intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One line of the study. Shares are 0 … 1."""

    pairs: int
    effect_pct: float
    seeds: int
    drift_pct: float
    """Percent per block position."""
    noise_pct: float
    """Standard deviation of a paired difference."""
    covered: float
    covered_plain: float
    """The same for the plain sign-flip interval, which leaves drift in the spread."""
    covered_bootstrap: float
    """The same for a percentile bootstrap over block pairs."""
    detected: float
    predicted: float
    """Share that `power` predicts to be detected."""


def coverage_study(
    *,
    pairs: Sequence[int] = (6, 8, 12),
    effects_pct: Sequence[float] = (0.0, 5.0),
    seeds: int = 1_000,
    drift_pct: float = 2.0,
    noise_pct: float = 4.0,
    predict_from: int = 0,
    first_seed: int = 0,
) -> tuple[Coverage, ...]:
    """Run the study; deterministic in its arguments. About 2 s a line at 12 pairs and 1,000 seeds."""
    return tuple(
        _line(
            n,
            effect_pct=effect,
            numbers=range(first_seed + i * seeds, first_seed + (i + 1) * seeds),
            drift_pct=drift_pct,
            noise_pct=noise_pct,
            predict_from=predict_from,
        )
        for n in pairs
        for i, effect in enumerate(effects_pct)
    )


def paired_differences(
    n: int, *, effect: float, drift: float, noise: float, seeds: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """(d, x): log ON/OFF of every block pair of every screening, shape (seeds, n), and the position differences (n,).

    All arguments on the log scale. Each seed is one screening with a generator of its own.
    """
    positions = np.arange(1, 2 * n + 1)
    on = np.isin(positions % 4, (2, 3))
    levels = np.stack([np.random.default_rng((seed, n)).normal(0, noise / math.sqrt(2), 2 * n) for seed in seeds])
    levels = levels + drift * (positions - 1) + effect * on
    pairs = levels.reshape(len(seeds), n, 2)
    first_is_on = on.reshape(n, 2)[:, 0]
    x = np.where(first_is_on, -1.0, 1.0)
    return (pairs[:, :, 1] - pairs[:, :, 0]) * x, x


def bootstrap_interval(d: FloatArray, *, draws: int = 1_000, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """95 % percentile bootstrap of the mean over pairs, for comparison only: with few pairs it covers too little."""
    n = d.shape[1]
    pick = np.random.default_rng(seed).integers(0, n, (draws, n))
    means = np.stack([d[:, row].mean(axis=1) for row in pick])
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return low, high


def _line(
    n: int, *, effect_pct: float, numbers: range, drift_pct: float, noise_pct: float, predict_from: int
) -> Coverage:
    effect, drift, noise = (math.log1p(v / 100) for v in (effect_pct, drift_pct, noise_pct))
    d, x = paired_differences(n, effect=effect, drift=drift, noise=noise, seeds=numbers)
    low, high, _ = intervals(d, x)
    plain_low, plain_high, _ = intervals(d)
    boot_low, boot_high = bootstrap_interval(d)
    return Coverage(
        pairs=n,
        effect_pct=effect_pct,
        seeds=len(numbers),
        drift_pct=drift_pct,
        noise_pct=noise_pct,
        covered=float(np.mean((low <= effect) & (effect <= high))),
        covered_plain=float(np.mean((plain_low <= effect) & (effect <= plain_high))),
        covered_bootstrap=float(np.mean((boot_low <= effect) & (effect <= boot_high))),
        detected=float(np.mean((low > 0) | (high < 0))),
        predicted=_predicted(
            n, effect_pct=effect_pct, drift=drift, noise=noise, predict_from=predict_from, numbers=numbers
        ),
    )


def _predicted(n: int, *, effect_pct: float, drift: float, noise: float, predict_from: int, numbers: range) -> float:
    if predict_from < LEAST_PAIRS:
        return power(n, effect_pct, noise)
    aa = [seed + 10**6 for seed in numbers]
    d, x = paired_differences(predict_from, effect=0.0, drift=drift, noise=noise, seeds=aa)
    design = np.column_stack([np.ones(predict_from), x])
    residual = d.T - design @ np.linalg.lstsq(design, d.T, rcond=None)[0]
    spreads = np.sqrt((residual**2).sum(axis=0) / (predict_from - 2))
    return float(np.mean([power(n, effect_pct, float(sd)) for sd in spreads]))


def as_table(lines: Sequence[Coverage]) -> str:
    """The study as fixed-width text."""
    head = "pairs  effect  seeds  drift/block  noise  covered  plain  bootstrap  detected  predicted"
    rows = [
        f"{c.pairs:5d}  {c.effect_pct:+5.1f}%  {c.seeds:5d}  {c.drift_pct:10.1f}%  {c.noise_pct:4.1f}%"
        f"  {c.covered:7.1%}  {c.covered_plain:5.1%}  {c.covered_bootstrap:9.1%}  {c.detected:8.1%}  {c.predicted:9.1%}"
        for c in lines
    ]
    return "\n".join([head, *rows])
