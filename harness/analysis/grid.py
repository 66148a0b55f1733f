"""Rows as a dense grid: block × planned key. The one place that turns stored tables into arrays.

Strategy: the plan, not the rows, says which cells exist. Every row is put into the cell (block, key) it claims; what
does not fit (null key, unknown key, a second row for a cell) is listed and never enters a statistic. Afterwards every
check and every metric is plain array arithmetic over cells, in batches of whole pairs so that memory stays bounded.

Integers stay 64-bit integers with a mask of what is known: a monotonic stamp of a host that has been up for 105 days
does not fit into a double (RES-1), and absent is never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from harness.model.planned import Plan, PlannedBlock, PlannedRequest
    from harness.model.stored import StoredBlock, StoredRun

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

BATCH_BLOCKS = 100
"""Blocks per batch: about 20,000 rows of the paper's plan."""


@dataclass(frozen=True, slots=True)
class Ints:
    """Integers with what is known about them; where `known` is False the value means nothing."""

    values: IntArray
    known: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Rows that stand in no cell: (index of the block in the grid, key) each."""

    null_keys: tuple[int, ...]
    unknown: tuple[tuple[int, str], ...]
    duplicates: tuple[tuple[int, str], ...]
    """Rows beyond the first of a cell."""

    @property
    def count(self) -> int:
        """Rows that stand in no cell."""
        return len(self.null_keys) + len(self.unknown) + len(self.duplicates)


class Layout:
    """The planned keys of a screening, in the order of the first block that plans them, and their units."""

    def __init__(self, plan: Plan) -> None:
        self.blocks: dict[int, PlannedBlock] = {block.position: block for block in plan.blocks}
        """Position → plan of that block; a pair of loose blocks plans only its own positions."""
        first: dict[str, PlannedRequest] = {}
        seen: set[int] = set()
        for block in plan.blocks:
            if id(block.requests) in seen:
                continue
            seen.add(id(block.requests))
            for request in block.requests:
                first.setdefault(request.key, request)
        self.requests: tuple[PlannedRequest, ...] = tuple(first.values())
        self.keys: tuple[str, ...] = tuple(first)
        self.index = {key: i for i, key in enumerate(self.keys)}
        self.units: tuple[str, ...] = tuple(dict.fromkeys(request.unit for request in self.requests))
        numbers = {unit: i for i, unit in enumerate(self.units)}
        self.unit_of_key: IntArray = np.array([numbers[r.unit] for r in self.requests], dtype=np.int64)

    @cached_property
    def value_set(self) -> Any:
        """The keys as an Arrow array, for look-ups."""
        return pa.array(self.keys, pa.string())

    def per_unit(self, cells: BoolArray) -> BoolArray:
        """(blocks, keys) → (blocks, units): True where any cell of the unit is."""
        out = np.zeros((cells.shape[0], len(self.units)), dtype=np.bool_)
        rows, keys = np.nonzero(cells)
        out[rows, self.unit_of_key[keys]] = True
        return out


class Grid:
    """The measured rows of some blocks. Arrays have the shape (blocks, keys)."""

    def __init__(
        self, layout: Layout, blocks: Sequence[StoredBlock], planned: BoolArray, columns: Sequence[str]
    ) -> None:
        self.layout = layout
        self.blocks = tuple(blocks)
        self.planned = planned
        tables = [_only(block.requests, columns) for block in blocks]
        self._table = pa.concat_tables(tables, promote_options="permissive") if tables else None
        counts = np.array([table.num_rows for table in tables], dtype=np.int64)
        self.rows_in = counts
        self.stray, self._row = self._place(np.repeat(np.arange(len(tables)), counts))
        self.present: BoolArray = self._row >= 0
        self._lists: dict[str, list[Any]] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """(blocks, keys)."""
        return len(self.blocks), len(self.layout.keys)

    def _place(self, block_of_row: IntArray) -> tuple[Stray, IntArray]:
        row = np.full(self.shape, -1, dtype=np.int64)
        if self._table is None:
            return Stray(null_keys=(), unknown=(), duplicates=()), row
        keys = _flat(self._table["key"])
        code = (
            pc.fill_null(pc.index_in(keys, value_set=self.layout.value_set), -1)
            .to_numpy(zero_copy_only=False)
            .astype(np.int64)
        )
        null = pc.is_null(keys).to_numpy(zero_copy_only=False)
        safe = np.where(code >= 0, code, 0)
        unplanned = (code < 0) | ~self.planned[block_of_row, safe]
        cell = block_of_row * self.shape[1] + code
        good = np.flatnonzero(~unplanned & ~null)
        _, first = np.unique(cell[good], return_index=True)
        chosen = good[first]
        row.ravel()[cell[chosen]] = chosen
        spare = np.setdiff1d(good, chosen, assume_unique=True)
        stray = Stray(
            null_keys=tuple(int(b) for b in block_of_row[null]),
            unknown=tuple((int(block_of_row[i]), str(keys[int(i)])) for i in np.flatnonzero(unplanned & ~null)),
            duplicates=tuple((int(block_of_row[i]), self.layout.keys[code[i]]) for i in spare),
        )
        return stray, row

    def ints(self, name: str) -> Ints:
        """An integer column; a column that the file does not have is unknown everywhere."""
        column = self._column(name)
        if column is None:
            return Ints(np.zeros(self.shape, dtype=np.int64), np.zeros(self.shape, dtype=np.bool_))
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        values = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return Ints(self._spread(values, 0), self._spread(valid, fill=False))

    def floats(self, name: str) -> FloatArray:
        """A float column; NaN where absent."""
        column = self._column(name)
        if column is None:
            return np.full(self.shape, np.nan)
        values = pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy(zero_copy_only=False)
        return self._spread(values, np.nan)

    def flags(self, name: str) -> Ints:
        """A boolean column as 0 / 1."""
        return self.ints(name)

    def codes(self, name: str) -> tuple[IntArray, list[Any]]:
        """A text column as (codes, dictionary); -1 where absent. Equal text has equal codes within this grid."""
        column = self._column(name)
        if column is None:
            return np.full(self.shape, -1, dtype=np.int64), []
        encoded = pc.dictionary_encode(column)
        values = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return self._spread(values, -1), encoded.dictionary.to_pylist()

    def texts(self, name: str) -> npt.NDArray[np.object_]:
        """A text column as Python strings, None where absent. For few blocks only."""
        codes, words = self.codes(name)
        table = np.array([*words, None], dtype=object)
        return table[codes]

    def listed(self, name: str) -> list[tuple[int, str]]:
        """Distinct (block, entry) of a column of lists, over all rows, also those that stand in no cell."""
        if self._table is None or name not in self._table.column_names:
            return []
        column = _flat(self._table[name])
        entries, parents = pc.list_flatten(column), pc.list_parent_indices(column)
        if len(entries) == 0:
            return []
        blocks = np.repeat(np.arange(len(self.rows_in)), self.rows_in)[parents.to_numpy(zero_copy_only=False)]
        return sorted({(int(block), str(entry)) for block, entry in zip(blocks, entries.to_pylist(), strict=True)})

    def row(self, block: int, key: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """One cell's row as a dict; the cell must be present. `columns` are cheap to ask of many cells."""
        table, place = self._table, int(self._row[block, key])
        if table is None or place < 0:
            raise KeyError((self.blocks[block].position, self.layout.keys[key]))
        if columns is None:
            return dict(table.slice(place, 1).to_pylist()[0])
        return {name: self._list(name)[place] for name in columns}

    def _list(self, name: str) -> list[Any]:
        """A column as Python values, kept: slicing a table row by row costs a hundred times more."""
        if name not in self._lists:
            column = self._column(name)
            self._lists[name] = [None] * int(self.rows_in.sum()) if column is None else column.to_pylist()
        return self._lists[name]

    def _column(self, name: str) -> Any:
        if self._table is None or name not in self._table.column_names:
            return None
        return _flat(self._table[name])

    def _spread(self, values: npt.NDArray[Any], fill: Any) -> npt.NDArray[Any]:
        out = np.full(self.shape, fill, dtype=values.dtype)
        out[self.present] = values[self._row[self.present]]
        return out


def _only(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    have, wanted = table.column_names, {"key", *columns}
    if isinstance(table, pa.Table) and wanted.issuperset(have):
        return table  # selecting all again would cost as much as an audit rule
    # A reader of large folders hands out tables that are read here, with just these columns.
    return table.select([name for name in have if name in wanted])


def _flat(column: Any) -> Any:
    """One contiguous plain array: dictionary-encoded text is decoded, so that files of any writer look alike.

    Typed loosely: the stubs of Arrow do not know which arrays compute functions return.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if hasattr(joined, "chunks") else joined


def grids(run: StoredRun, layout: Layout, columns: Sequence[str], *, batch: int = BATCH_BLOCKS) -> Iterator[Grid]:
    """Grids over all stored blocks, whole pairs together, ordered by pair and position.

    Blocks that the plan does not know (position beyond the order) are left out: the audit reports them by themselves.
    """
    for part in _batches(run, layout, batch):
        planned = np.zeros((len(part), len(layout.keys)), dtype=np.bool_)
        cache: dict[int, BoolArray] = {}
        for i, block in enumerate(part):
            requests = layout.blocks[block.position].requests
            mask = cache.get(id(requests))
            if mask is None:
                mask = np.zeros(len(layout.keys), dtype=np.bool_)
                mask[[layout.index[request.key] for request in requests]] = True
                cache[id(requests)] = mask
            planned[i] = mask
        yield Grid(layout, part, planned, columns)


def known_blocks(run: StoredRun, layout: Layout) -> list[StoredBlock]:
    """Blocks whose position the plan knows, one a position, ordered by planned pair and position."""
    first: dict[int, StoredBlock] = {}
    for block in run.blocks:
        if block.position in layout.blocks:
            first.setdefault(block.position, block)
    return sorted(first.values(), key=lambda b: (layout.blocks[b.position].pair, b.position))


def _batches(run: StoredRun, layout: Layout, size: int) -> Iterator[list[StoredBlock]]:
    part: list[StoredBlock] = []
    pair = None
    for block in known_blocks(run, layout):
        planned = layout.blocks[block.position].pair
        if planned != pair and len(part) >= size:
            yield part
            part = []
        pair = planned
        part.append(block)
    if part:
        yield part
