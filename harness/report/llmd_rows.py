"""Rows of one arm as the llm-d benchmark report aggregates them: which may enter a statistic, and statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.model.findings import Verdict
from harness.model.stored import StoredRun

Floats = npt.NDArray[np.float64]

_GOOD = ("correct", "forced_ok", "unchecked")
_PERCENTILES = {"p10": 10, "p25": 25, "p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
_COLUMNS = (
    *("pair", "unit", "workload", "ok", "verdict", "excluded", "client_limited", "time_scale", "prompt_tokens"),
    *("completion_tokens", "payload_bytes", "start_ns", "first_content_ns", "last_content_ns", "done_ns"),
)


class ArmRows:
    """Measured rows of one arm; `used` are those that may enter a statistic of speed."""

    def __init__(self, run: StoredRun, verdict: Verdict, arm: str) -> None:
        tables = [block.requests.select(_COLUMNS) for block in run.blocks if block.plays == arm]
        self.all = pa.concat_tables(tables, promote_options="permissive") if tables else _empty()
        self.used = self.all.filter(pa.array(_usable(self.all, verdict), pa.bool_()))

    @property
    def failures(self) -> int:
        """Rows whose stream did not keep its contract."""
        return sum(not ok for ok in self.all.column("ok").to_pylist())

    @property
    def sessions(self) -> int:
        """Sessions that were run, whatever became of them."""
        columns = (self.all.column(name).to_pylist() for name in ("workload", "pair", "unit"))
        return len({(pair, unit) for workload, pair, unit in zip(*columns, strict=True) if workload == "sessions"})

    def column(self, name: str) -> Floats:
        """A column of the used rows as floats, without nulls."""
        return _floats(self.used.column(name))

    def seconds(self, first: str, last: str) -> Floats:
        """Stamp `last` − stamp `first` of the used rows in scaled seconds; integers are subtracted before any float."""
        difference = pc.subtract(self.used.column(last), self.used.column(first)).cast(pa.float64())
        return _floats(pc.divide(difference, pc.multiply(self.used.column("time_scale"), 1e9)))

    def seconds_per_token(self) -> Floats:
        """(t_last − t_first) / (N − 1) of every used row with at least two output tokens, in scaled seconds."""
        table = self.used
        span = pc.subtract(table.column("last_content_ns"), table.column("first_content_ns")).cast(pa.float64())
        more = pc.subtract(table.column("completion_tokens").cast(pa.float64()), 1.0)
        value = _floats(pc.divide(span, pc.multiply(pc.multiply(table.column("time_scale"), 1e9), more)))
        return value[np.isfinite(value) & (value > 0)]


def statistics(values: Floats, units: str) -> dict[str, Any] | None:
    """Statistics in the format's words; None of nothing."""
    if not len(values):
        return None
    spread = {"stddev": float(values.std(ddof=1))} if len(values) > 1 else {}
    return (
        {"units": units, "mean": float(values.mean()), **spread, "min": float(values.min())}
        | {name: float(np.percentile(values, q)) for name, q in _PERCENTILES.items()}
        | {"max": float(values.max())}
    )


def _empty() -> pa.Table:
    return pa.table(
        {name: pa.nulls(0, pa.string() if name in {"unit", "workload"} else pa.int64()) for name in _COLUMNS}
    )


def _usable(table: pa.Table, verdict: Verdict) -> list[bool]:
    """Right, whole, not client-limited, and in a unit that stayed in the estimate."""
    left = {(unit.pair, unit.unit) for unit in verdict.excluded_units}
    gone = {pair for pair, unit in left if unit == "*"}
    names = ("ok", "verdict", "excluded", "client_limited", "pair", "unit")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return [
        bool(ok)
        and said in _GOOD
        and excluded is None
        and limited is None
        and pair not in gone
        and (pair, unit) not in left
        for ok, said, excluded, limited, pair, unit in rows
    ]


def _floats(column: Any) -> Floats:
    return np.asarray(pc.drop_null(column).to_numpy(), dtype=np.float64)
