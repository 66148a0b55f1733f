"""Tables of stored blocks, read when somebody asks for them: only the columns asked for, and not kept afterwards.

Strategy: a folder of ten thousand blocks does not fit into memory, but everybody who walks over it asks block after
block for the same few columns. `StoredTable` stands for a `pyarrow.Table`: what needs no rows (names, schema, number of
rows) is known, `select` and single columns read just those, and anything else reads the whole table. Once blocks are
asked for one after another, a thread decodes a few blocks ahead; Arrow does not hold the interpreter's lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.model.errors import SchemaError
from harness.store import durable
from harness.store.schemas import arrow_schema, conform, empty_table

AHEAD = 16
"""Blocks decoded ahead of the one asked for: about 2 MiB of the audit's columns."""


class StoredTable:
    """Stands for the `pyarrow.Table` of one file. `exact` says that the file has today's schema to the letter."""

    def __init__(self, shelf: TableShelf, index: int, *, rows: int, exact: bool) -> None:
        self._shelf = shelf
        self._index = index
        self._exact = exact
        self.num_rows = rows

    @property
    def schema(self) -> pa.Schema:
        """Today's schema, which every table is brought to."""
        return arrow_schema(self._shelf.table)

    @property
    def column_names(self) -> list[str]:
        """Every column of the schema."""
        return self.schema.names

    def select(self, names: Sequence[str]) -> pa.Table:
        """A real table of just these columns, in this order; the others are not read."""
        if not self._exact:
            return self.whole().select(list(names))
        return self._shelf.read(self._index, tuple(names))

    def column(self, name: str) -> pa.ChunkedArray[Any]:
        """One column; KeyError for one the schema does not have."""
        if name not in self.schema.names:
            raise KeyError(name)
        return self.select([name]).column(0)

    def __getitem__(self, name: str) -> pa.ChunkedArray[Any]:
        return self.column(name)

    def __len__(self) -> int:
        return self.num_rows

    def __getattr__(self, name: str) -> Any:
        # Whatever else a table can do, it does with all of its columns.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.whole(), name)

    def whole(self) -> pa.Table:
        """All columns as a real table."""
        return self._shelf.whole(self._index)


class TableShelf:
    """One kind of table (`requests`, `warmups`, …) of every block of a run, in the order of the blocks."""

    def __init__(self, stem: str, table: str, paths: Sequence[Path]) -> None:
        self.stem = stem
        self.table = table
        self._paths = paths
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[int, Future[pa.Table]] = {}
        self._asked: tuple[int, tuple[str, ...]] = (-1, ())
        self._opened: tuple[int, pq.ParquetFile] | None = None

    def read(self, index: int, names: tuple[str, ...]) -> pa.Table:
        """These columns of one block; with the same columns asked of block after block, the next are made ready."""
        with self._lock:
            last, before = self._asked
            self._asked = (index, names)
            if names != before or index != last + 1:
                self._forget()
                return self._decode(index, names)
            ready = self._ahead(index, names)
        return ready.result()

    def whole(self, index: int) -> pa.Table:
        """All columns of one block in today's schema; an empty table where there is no readable file."""
        path = self._path(index)
        if not path.is_file():
            return empty_table(self.table)
        try:
            stored = _open(path).read(use_threads=False)
        except (pa.ArrowException, OSError):
            return empty_table(self.table)  # reading the folder has said so as a finding
        return conform(stored, self.table)[0]

    def _ahead(self, index: int, names: tuple[str, ...]) -> Future[pa.Table]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"decode-{self.stem}")
        for later in range(index, min(index + AHEAD, len(self._paths))):
            if later not in self._waiting:
                self._waiting[later] = self._pool.submit(self._fresh, later, names)
        return self._waiting.pop(index)

    def _forget(self) -> None:
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()

    def _decode(self, index: int, names: tuple[str, ...]) -> pa.Table:
        """Read where blocks are asked for out of order; the last file stays open for its other columns."""
        if self._opened is None or self._opened[0] != index:
            self._opened = (index, self._file(index))
        return self._columns(self._opened[1], names)

    def _fresh(self, index: int, names: tuple[str, ...]) -> pa.Table:
        return self._columns(self._file(index), names)

    def _file(self, index: int) -> pq.ParquetFile:
        path = self._path(index)
        try:
            return _open(path)
        except (pa.ArrowException, OSError) as error:
            words = f"{path} changed while it was being read: {error}"
            raise SchemaError(words, hint="Leave the folder alone and try again.") from error

    @staticmethod
    def _columns(file: pq.ParquetFile, names: tuple[str, ...]) -> pa.Table:
        return file.read(columns=list(names), use_threads=False).select(list(names))

    def _path(self, index: int) -> Path:
        return self._paths[index] / f"{self.stem}.parquet"


def _open(path: Path) -> pq.ParquetFile:
    # Files are small: one read of all bytes costs less than a seek for every column.
    return pq.ParquetFile(pa.BufferReader(durable.read_file(str(path))), pre_buffer=False)
