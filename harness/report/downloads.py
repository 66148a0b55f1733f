"""The tables that the page carries for download, and what it says about those that are too long to carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from harness.model.stored import StoredRun
from harness.report.embed import columns_from_rows, columns_of
from harness.report.flat import effect_rows, summary_rows

if TYPE_CHECKING:
    from harness.analysis import Effects

CSV_ROWS = 2_000
"""Rows of one table that the page carries; the paper's screening has 768 requests and 200 matched units."""

Button = tuple[str, str, str]
"""(name of the table, file name, label)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloads:
    """Tables by name as compact columns, a button each, and what they leave out."""

    tables: Mapping[str, Any]
    buttons: tuple[Button, ...]
    sentence: str


@dataclass(slots=True)
class _Shelf:
    stem: str
    tables: dict[str, Any] = field(default_factory=dict)
    buttons: list[Button] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    def put(self, name: str, columns: Sequence[Mapping[str, Any]], *, kept: int, total: int) -> None:
        """Add a table; a cut one says so in its file name, on its button and in the sentence."""
        self.tables[name] = columns
        label, file = f"{name.capitalize()} as CSV", f"{self.stem}-{name}.csv"
        if kept < total:
            label, file = f"{label} (first {kept:,} rows)", f"{self.stem}-{name}-first-{kept}-of-{total}.csv"
            self.cut.append(f"the first {kept:,} of {total:,} {name}")
        self.buttons.append((name, file, label))


def downloads(run: StoredRun, effects: Effects) -> Downloads:
    """Summary (one row a cell), observations (one row a matched unit) and requests (every stored column)."""
    shelf = _Shelf(f"{run.screening.name}-{run.run}")
    summary = summary_rows(effects.table)
    shelf.put("summary", columns_from_rows(summary), kept=len(summary), total=len(summary))
    total = sum(effect.units for effect in effects.table.effects)
    observed = effect_rows(effects.table, limit=CSV_ROWS)
    shelf.put("observations", columns_from_rows(observed), kept=len(observed), total=total)
    kept = _head([block.requests for block in run.blocks], CSV_ROWS)
    if kept is not None:
        rows = sum(block.requests.num_rows for block in run.blocks)
        shelf.put("requests", columns_of(kept), kept=kept.num_rows, total=rows)
    return Downloads(tables=shelf.tables, buttons=tuple(shelf.buttons), sentence=_sentence(shelf.cut))


def _sentence(cut: Sequence[str]) -> str:
    if not cut:
        return "Summary, matched units and requests are whole; requests come with every stored column."
    return (
        f"To stay usable, this page carries {' and '.join(cut)}. All of them: `kvabba export`, "
        "or the folder's blocks/*/requests.parquet read as one data set."
    )


def _head(tables: Sequence[pa.Table], limit: int) -> pa.Table | None:
    """The first rows of the blocks as one table."""
    chosen: list[pa.Table] = []
    left = limit
    for table in tables:
        if left <= 0:
            break
        chosen.append(table.slice(0, left))
        left -= table.num_rows
    return pa.concat_tables(chosen, promote_options="permissive") if chosen else None
