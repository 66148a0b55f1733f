"""Flat tables for interchange: one row an observation of the statistics, and every request row as CSV."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from harness.model.rows import REQUESTS
from harness.model.stored import StoredRun
from harness.report.effect_views import number
from harness.report.embed import FREE_TEXT

if TYPE_CHECKING:
    from harness.analysis import Effect, EffectTable

_FORMULA = r"^([=+\-@\t\r])"


def summary_rows(table: EffectTable) -> list[dict[str, Any]]:
    """One row a cell and treatment; None where a value does not exist."""
    return [
        _cell_facts(table, effect)
        | {
            "units": effect.units,
            "block_pairs": effect.pairs,
            "excluded_units": effect.excluded_units,
            "baseline_median": number(effect.baseline_median),
            "treatment_median": number(effect.treated_median),
            "mean_change_pct": number(effect.mean_change_pct),
            "per_block_pair_pct": [pair.change_pct for pair in effect.per_pair],
            "low_pct": effect.low_pct,
            "high_pct": effect.high_pct,
            "no_interval": effect.no_interval,
            "aa_floor_pct": None if effect.floor is None else effect.floor.pct,
        }
        for effect in table.effects
    ]


def effect_rows(table: EffectTable, *, limit: int | None = None) -> list[dict[str, Any]]:
    """One row a cell, treatment, block pair and matched unit: both values and the change; the first `limit` of them."""
    rows = (
        _cell_facts(table, effect)
        | {"block_pair": pair, "unit": unit, "baseline": off, "treatment": on, "change_pct": 100 * (on / off - 1)}
        for effect in table.effects
        for pair, unit, off, on in effect.observations
    )
    return list(islice(rows, limit))


def _cell_facts(table: EffectTable, effect: Effect) -> dict[str, Any]:
    cell = effect.cell
    return {
        "screening": table.screening,
        "run": table.run,
        "verdict": table.status,
        "cell": cell.id,
        "metric": cell.metric,
        "unit_of_value": cell.unit,
        "size": cell.size,
        "role": cell.role or None,
        "placement": cell.placement or None,
        "output": cell.output or None,
        "sessions": cell.sessions or None,
        "baseline_arm": effect.baseline,
        "treatment_arm": effect.treatment,
    }


def write_observations_csv(table: EffectTable, path: Path) -> Path:
    """`effect_rows` as CSV; a screening without a complete pair gives an empty file with no columns."""
    rows = effect_rows(table)
    with path.open("w", encoding="utf-8", newline="") as file:
        if rows:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


def write_requests_csv(run: StoredRun, path: Path) -> Path:
    """Every measured row of every committed block with every column of `harness.model.rows.REQUESTS`, block by block.

    Times are raw nanoseconds; `time_scale` stands beside them. Lists are joined by spaces; free text that a spreadsheet
    would read as a formula carries a leading apostrophe.
    """
    names = [column.name for column in REQUESTS]
    writer: pacsv.CSVWriter | None = None
    try:
        for block in run.blocks:
            table = _flat_table(block.requests, names)
            writer = writer or pacsv.CSVWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        path.write_text(",".join(f'"{name}"' for name in names) + "\n", encoding="utf-8")
    return path


def _flat_table(table: pa.Table, names: list[str]) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in names:
        column = table.column(name)
        if pa.types.is_list(column.type):
            columns[name] = pc.binary_join(column, " ")
        elif name in FREE_TEXT:
            columns[name] = pc.replace_substring_regex(column, pattern=_FORMULA, replacement=r"'\1")
        else:
            columns[name] = column
    return pa.table(columns)
