"""The client's own error bar of a TTFT cell: how far its stamps can be from the truth, from the rows themselves.

A row's bound is how late the request was sent, and, where the kernel did not stamp the arrival, the largest lag of the
event loop during the request. A cell shows the worst of its rows, plus the 99th percentile of the error that a
calibration against known send stamps found on this machine, where run.json holds one (`client_calibration`: the fields
of `harness.client.calibrate.ErrorBar`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.model.stored import StoredRun
from harness.report.numbers import DASH

_COLUMNS = ("workload", "size", "role", "step", "stamp_source", "late_send_ns", "loop_lag_max_ns", "time_scale")
HEAD = "worst row, ms"


def client_errors(run: StoredRun) -> dict[str, str]:
    """Cell id (`ttft/8k/cold`) → `≤ 0.120`, in milliseconds of real time."""
    tables = [block.requests.select(_COLUMNS) for block in run.blocks]
    if not tables:
        return {}
    table = pa.concat_tables(tables, promote_options="permissive")
    chains = table.filter(pc.equal(table.column("workload"), pa.scalar("chains")))
    kernel = pc.equal(chains.column("stamp_source"), pa.scalar("kernel"))
    reader = pc.if_else(kernel, 0, chains.column("loop_lag_max_ns"))
    bound = pc.add(reader, chains.column("late_send_ns"))  # null where either part is unknown
    groups = ["size", "role", "step"]
    grouped = chains.select(groups).append_column("bound", bound).group_by(groups)
    calibrated = _calibrated_ns(run)
    return {
        f"ttft/{row['size']}/{_role(row)}": _text(row["bound_max"], calibrated)
        for row in grouped.aggregate([("bound", "max")]).to_pylist()
    }


def client_note(run: StoredRun) -> str:
    """What the client error means, and the calibration of this machine where the run recorded one."""
    words = (
        "Client error: how late the request was sent, plus the event-loop lag where the kernel did not stamp the "
        "arrival; the worst row of the cell in any arm, in real time."
    )
    calibrated = _calibrated_ns(run)
    if calibrated is None:
        return f"{words} No calibration against known send stamps was recorded with this run."
    return f"{words} The calibrated error of this machine is in it (99 % of stamps within {calibrated / 1e6:,.3f} ms)."


def _calibrated_ns(run: StoredRun) -> float | None:
    value = run.header.get("client_calibration")
    found = value.get("p99_ns") if isinstance(value, Mapping) else None
    return abs(float(found)) if isinstance(found, int | float) else None


def _text(bound_ns: int | None, calibrated_ns: float | None) -> str:
    if bound_ns is None and calibrated_ns is None:
        return DASH
    return f"≤ {((bound_ns or 0) + (calibrated_ns or 0)) / 1e6:,.3f}"


def _role(row: Mapping[str, Any]) -> str:
    return str(row["step"] if row["role"] == "local" and row["step"] != "local-1" else row["role"])
