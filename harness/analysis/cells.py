"""What is compared: cells (one metric under one condition), their effects, and the table of all of them.

Plain values for the report, the answer and the comparisons; how they are computed stands in `metrics` and `effects`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Metric = Literal["ttft", "ttft_after_connect", "decode_rate", "session_wall", "window_throughput"]

UNITS: dict[Metric, str] = {
    "ttft": "s",
    "ttft_after_connect": "s",
    "decode_rate": "tokens/s",
    "session_wall": "s",
    "window_throughput": "tokens/s",
}
LOWER_IS_BETTER: dict[Metric, bool] = {
    "ttft": True,
    "ttft_after_connect": True,
    "decode_rate": False,
    "session_wall": True,
    "window_throughput": False,
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One metric under one condition. Fields that do not apply are empty (`""`) or 0."""

    metric: Metric
    size: str
    """Label of the nominal size."""
    role: str = ""
    """Chains: cold, local (the first only), local-2, cross, receiver_local. Generation: cold, hot."""
    placement: str = ""
    """Sessions and windows: fixed or alternating."""
    output: int = 0
    """Generation: forced output tokens."""
    sessions: int = 0
    """Windows: sessions at once."""

    @property
    def id(self) -> str:
        """A stable name such as `ttft/128k/cross`, `session_wall/32k/fixed`, `window_throughput/32k/alternating/4`."""
        parts = (self.metric, self.size, self.role, self.placement, str(self.output or ""), str(self.sessions or ""))
        return "/".join(part for part in parts if part)

    @property
    def unit(self) -> str:
        """Unit of the values: s or tokens/s."""
        return UNITS[self.metric]

    @property
    def label(self) -> str:
        """Words for a person."""
        role = self.role.replace("_", "-")
        if self.metric == "session_wall":
            return f"{self.placement} sessions at {self.size}"
        if self.metric == "window_throughput":
            return f"{self.sessions} {self.placement} sessions at once, {self.size}"
        if self.metric == "decode_rate":
            return f"decode rate, {self.size} {role}, {self.output:,} tokens"
        return f"TTFT{' after connect' if self.metric == 'ttft_after_connect' else ''}, {self.size} {role}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Every matched unit of a cell: one entry a unit and block pair, in the order of pairs, then of the plan."""

    pair: npt.NDArray[np.int64]
    unit: npt.NDArray[np.object_]
    """Names of the units."""
    baseline: npt.NDArray[np.float64]
    treated: npt.NDArray[np.float64]
    """Both in the cell's unit, simulated time already scaled."""

    def __len__(self) -> int:
        return len(self.pair)

    def __iter__(self) -> Iterator[tuple[int, str, float, float]]:
        for i in range(len(self.pair)):
            yield int(self.pair[i]), str(self.unit[i]), float(self.baseline[i]), float(self.treated[i])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEffect:
    """The effect within one block pair."""

    pair: int
    units: int
    change_pct: float
    """Mean of 100·(ON/OFF − 1) over the units of this pair."""
    log_ratio: float
    """Mean of ln(ON/OFF) over the same units: what the test works on."""
    offset: int
    """Position of the treated block − position of the baseline's block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What an A/A screening of the same fingerprint shows in this cell, where nothing differs but the label."""

    pct: float
    """95 % of A/A means over `for_pairs` block pairs lie within ± this many percent (see `floors`)."""
    aa_pairs: int
    """Block pairs of the A/A run(s) it rests on."""
    for_pairs: int
    largest_pct: float
    """Largest absolute change of any A/A block pair: the same in plain sight, without a model."""
    fingerprint: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The comparison of one treatment with the baseline in one cell."""

    cell: Cell
    baseline: str
    treatment: str
    units: int
    """Matched units in all block pairs."""
    pairs: int
    excluded_units: int
    """Units of this cell that left the estimate."""
    baseline_median: float
    treated_median: float
    mean_change_pct: float
    """Mean of 100·(ON/OFF − 1) over matched units."""
    per_pair: tuple[PairEffect, ...]
    estimate_pct: float
    """100·(exp(mean log-ratio over block pairs) − 1): what the interval is about."""
    low_pct: float | None
    high_pct: float | None
    no_interval: str | None
    """Why there is no interval, in words; None where there is one."""
    p_value: float | None
    p_plain: float | None
    drift_pct: float | None
    """Percent per block position as seen by the paired differences; None without an interval."""
    method: str | None
    observations: Observations
    floor: Floor | None = None

    @property
    def inside_floor(self) -> bool | None:
        """True where the mean change is no larger than the A/A noise floor; None without a floor."""
        return None if self.floor is None else abs(self.mean_change_pct) <= self.floor.pct


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectTable:
    """All effects of a screening. `status` is the verdict's: anything but `valid` is stamped across the figures."""

    screening: str
    run: str
    status: Literal["valid", "incomplete", "void"]
    aa: bool
    baseline: str
    treatments: tuple[str, ...]
    effects: tuple[Effect, ...]
    inconclusive: str | None = None
    """Words where failure rates differ between arms."""

    def find(self, cell_id: str, treatment: str | None = None) -> Effect | None:
        """The effect of that cell (and treatment, the first by default), or None."""
        wanted = treatment or (self.treatments[0] if self.treatments else "")
        return next((e for e in self.effects if e.cell.id == cell_id and e.treatment == wanted), None)

    def of_metric(self, metric: Metric, treatment: str | None = None) -> tuple[Effect, ...]:
        """All effects of one metric, in reading order (`metrics.series`)."""
        return tuple(e for e in self.effects if e.cell.metric == metric and treatment in (None, e.treatment))
