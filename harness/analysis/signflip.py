"""The sign-flip test over block pairs and the interval that inverts it, with linear drift removed.

Model, per block pair p = 1 … n: d_p = θ + δ·x_p + e_p on the log scale, with θ the effect, x_p = position of the
treated block − position of its partner, δ the drift per block position (a nuisance), e_p independent and symmetric
around 0.

Strategy. With r(θ) = M(d − θ·1), M the projection that removes x, a sign vector s has the standardised statistic
T_s(θ) = s'r(θ) / √(s'Ms) (De Santis, Goeman, Hemerik, Davenport and Finos, "Inference in generalized linear models
with robustness to misspecified variances", standardised sign-flip score test). The test compares T_1 with T_s over
all 2^n sign vectors. Without x it is the plain sign-flip test and T_s ≥ T_1 holds exactly where θ is at least the
mean of the flipped d_p: the thresholds are then Hartigan's subset means ("Using subsample values as typical values",
JASA 1969), and each gap between consecutive ones holds θ with probability 2^-n. With x the threshold of s is still
linear: θ_s = (a_1 − a_s) / (b_1 − b_s), a_s = s'Md/√(s'Ms), b_s = s'M1/√(s'Ms). The interval is an order statistic of
thresholds.

Why drift is removed: an order such as OFF-ON-ON-OFF cancels linear drift in the mean, but leaves it in the spread of
the d_p, so the plain test would be far too cautious (99.9 % instead of 95 % with drift of twice the noise; see
docs/method.md).

What "exact" means here: all 2^n sign vectors are enumerated up to n = 14; above, random ones stand for them. The
plain test is exact in the strict sense for symmetric errors without drift, and its p value is given as well.

The attainable one-sided levels are multiples of 2^-n: with n = 6, 95 % lies between the 1st (96.9 %) and the 2nd
(93.75 %) threshold. The limits are interpolated linearly between the two, which gives about 95 % and is said in
`method`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

Scores = tuple[FloatArray, FloatArray]
"""a of shape (flips, samples) and b of shape (flips,), as in the docstring above."""

LEAST_PAIRS = 6
"""With 5 pairs the smallest two-sided level is 2/32 = 6.25 %: no 95 % interval exists."""
EXACT_PAIRS = 14
RANDOM_FLIPS = 10_000
SEED = 314159
_TIE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """Result on the log scale. `low`/`high`: nominal `level` interval of the effect θ."""

    pairs: int
    estimate: float
    """Drift-free mean of d_p; equals the plain mean in a balanced design."""
    low: float
    high: float
    p_value: float
    """Two-sided, drift removed."""
    p_plain: float
    """Two-sided, plain sign-flip test: exact without drift, cautious with it."""
    drift: float | None
    """Estimate of δ, log units per block position; None where it is not identifiable."""
    level: float
    method: str


def sign_flip(d: FloatArray, x: FloatArray | None = None, *, level: float = 0.95, seed: int = SEED) -> SignFlip:
    """Test and interval for one cell. `d`: mean log-ratio per block pair, shape (n,); `x`: position differences.

    ValueError below `LEAST_PAIRS` pairs: the caller says in words why there is no interval (`too_few`).
    """
    return sign_flips(np.asarray(d, dtype=np.float64)[None, :], x, level=level, seed=seed)[0]


def sign_flips(
    d: FloatArray, x: FloatArray | None = None, *, level: float = 0.95, seed: int = SEED
) -> tuple[SignFlip, ...]:
    """The same for many cells with the same block pairs at once: `d` has the shape (cells, n)."""
    cells, n = d.shape
    if n < LEAST_PAIRS:
        raise ValueError(too_few(n))
    usable = _usable(x)
    plain = _scores(d, None, seed)
    scores = plain if usable is None else _scores(d, usable, seed)
    low, high, estimate = _limits(scores, level)
    p_value, p_plain = _two_sided(scores, 0.0), _two_sided(plain, 0.0)
    drift = np.full(cells, np.nan)
    if usable is not None:
        centred = usable - usable.mean()
        drift = d @ centred / (centred @ centred)
    method = _method(n, len(sign_vectors(n, seed)), removed=usable is not None, seed=seed)
    return tuple(
        SignFlip(
            pairs=n,
            estimate=float(estimate[i]),
            low=float(low[i]),
            high=float(high[i]),
            p_value=float(p_value[i]),
            p_plain=float(p_plain[i]),
            drift=None if usable is None else float(drift[i]),
            level=level,
            method=method,
        )
        for i in range(cells)
    )


def intervals(
    d: FloatArray, x: FloatArray | None = None, *, level: float = 0.95, seed: int = SEED
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(low, high, estimate) for many samples at once: `d` has the shape (samples, n), each result (samples,)."""
    return _limits(_scores(d, _usable(x), seed), level)


def p_values(d: FloatArray, x: FloatArray | None = None, *, theta: float = 0.0, seed: int = SEED) -> FloatArray:
    """Two-sided p of effect = `theta` for many samples: twice the smaller share of sign vectors at least as extreme."""
    return _two_sided(_scores(d, _usable(x), seed), theta)


def _limits(scores: Scores, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    a, b = scores
    estimate = a[0] / b[0]
    gap = b[0] - b[1:]
    safe = np.where(gap > _TIE, gap, 1.0)[:, None]
    thresholds = np.where((gap > _TIE)[:, None], (a[0] - a[1:]) / safe, estimate)
    thresholds.sort(axis=0)
    rank = (1 - level) / 2 * len(b)
    whole, part = int(rank), rank - int(rank)
    low = thresholds[whole - 1] + part * (thresholds[whole] - thresholds[whole - 1])
    high = thresholds[-whole] - part * (thresholds[-whole] - thresholds[-whole - 1])
    return low, high, estimate


def _two_sided(scores: Scores, theta: float) -> FloatArray:
    a, b = scores
    t = a - theta * b[:, None]
    tie = _TIE * (1.0 + np.abs(t[0]))
    upper = (t >= t[0] - tie).mean(axis=0)
    lower = (t <= t[0] + tie).mean(axis=0)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(upper, lower)), dtype=np.float64)


@lru_cache(maxsize=4)
def sign_vectors(n: int, seed: int = SEED) -> npt.NDArray[np.int8]:
    """Sign vectors, shape (flips, n), the identity first, closed under negation; all 2^n up to `EXACT_PAIRS` pairs."""
    if n <= EXACT_PAIRS:
        codes = np.arange(2**n)
        return (1 - 2 * ((codes[:, None] >> np.arange(n)) & 1)).astype(np.int8)
    rng = np.random.default_rng((seed, n))
    half = rng.integers(0, 2, (RANDOM_FLIPS // 2, n), dtype=np.int8) * np.int8(2) - np.int8(1)
    half[0] = 1
    return np.concatenate([half, -half])


def too_few(pairs: int) -> str:
    """Why there is no interval, in words."""
    if pairs == 0:
        return "no interval: no block pair has this cell"
    reach = 100 * 2 / 2**pairs
    return (
        f"no interval: {pairs} block pair{'s' if pairs > 1 else ''}; the smallest level a two-sided sign-flip test of"
        f" {pairs} can reach is {min(reach, 100):g} %, so a 95 % interval needs at least {LEAST_PAIRS}"
    )


def _usable(x: FloatArray | None) -> FloatArray | None:
    """`x` where drift is identifiable beside the effect: both orders of the pair must occur."""
    if x is None or np.ptp(x) == 0:
        return None
    return np.asarray(x, dtype=np.float64)


def _scores(d: FloatArray, x: FloatArray | None, seed: int) -> Scores:
    """A (flips, samples) and b (flips,) of the module's docstring."""
    n = d.shape[1]
    signs = sign_vectors(n, seed)
    variance, cleaned, ones = np.full(len(signs), float(n)), d.T, np.ones(n)
    if x is not None:
        square = float(x @ x)
        variance = n - (_product(signs, x[:, None])[:, 0]) ** 2 / square
        cleaned = d.T - np.outer(x, x @ d.T) / square
        ones = ones - x * (x.sum() / square)
    flat = variance > _TIE * n
    scale = np.where(flat, 1 / np.sqrt(np.where(flat, variance, 1.0)), 0.0)
    return _product(signs, cleaned) * scale[:, None], _product(signs, ones[:, None])[:, 0] * scale


def _product(signs: npt.NDArray[np.int8], right: FloatArray, rows: int = 2_000_000) -> FloatArray:
    """Signs @ right in pieces, so that the signs are never held as doubles all at once."""
    step = max(1, rows // signs.shape[1])
    return np.concatenate([signs[i : i + step].astype(np.float64) @ right for i in range(0, len(signs), step)])


def _method(n: int, flips: int, *, removed: bool, seed: int) -> str:
    how = f"all {flips:,} sign vectors" if n <= EXACT_PAIRS else f"{flips:,} random sign vectors (seed {seed})"
    drift = "linear drift over block positions removed" if removed else "drift not removed (one order of blocks only)"
    limits = "limits interpolated between attainable levels"
    return f"sign-flip test over {n} block pairs on mean log-ratios, {how}, {drift}; {limits}"
