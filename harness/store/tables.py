"""Tables of stored blocks, read when somebody asks for them: only the columns asked for, and not kept afterwards.

Strategy: a folder of ten thousand blocks does not fit into memory, but everybody who walks over it asks block after
block for the same few columns. `StoredTable` stands for a `pyarrow.Table`: what needs no rows (names, schema, number of
rows) is known, `select` and single columns read just those, and anything else reads the whole table. Once blocks of a
large folder are asked for one after another, worker processes decode some blocks ahead. (A thread does not help: it
needs the interpreter's lock a dozen times a block, and waits for it each time until the audit's own work lets go.)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.model.errors import SchemaError
from harness.store import durable
from harness.store.schemas import arrow_schema, conform, empty_table

BATCH = 8
"""Blocks a worker decodes at a time."""
AHEAD = 16
"""Batches in the making: more blocks than a grid of the audit holds (100), else the workers idle while it is judged;
some 8 MiB of its columns."""


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
    """One kind of table (`requests`, `warmups`, …) of every block of a run, in the order of the blocks.

    Not for several threads at once.
    """

    def __init__(self, stem: str, table: str, paths: Sequence[Path], workers: Executor | None = None) -> None:
        self.stem = stem
        self.table = table
        self._paths = paths
        self._workers = workers
        self._waiting: dict[int, Future[list[bytes | None]]] = {}
        self._batch: tuple[int, list[bytes | None]] = (-1, [])
        self._asked: tuple[int, tuple[str, ...]] = (-1, ())
        self._opened: tuple[int, pq.ParquetFile] | None = None

    def read(self, index: int, names: tuple[str, ...]) -> pa.Table:
        """These columns of one block; with the same columns asked of block after block, the next are made ready."""
        last, before = self._asked
        self._asked = (index, names)
        if names != before or index != last + 1:
            self._forget()
        elif self._workers is not None:
            ready = self._ahead(self._workers, index // BATCH, names)[index % BATCH]
            if ready is not None:
                return pa.ipc.open_stream(ready).read_all()
        return _columns(self._file(index), names)

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

    def _ahead(self, workers: Executor, number: int, names: tuple[str, ...]) -> list[bytes | None]:
        """The blocks of a batch, and the next batches on their way."""
        if self._batch[0] != number:
            for later in range(number, min(number + AHEAD, -(-len(self._paths) // BATCH))):
                if later not in self._waiting:
                    folders = self._paths[later * BATCH : (later + 1) * BATCH]
                    files = [folder / f"{self.stem}.parquet" for folder in folders]
                    self._waiting[later] = workers.submit(decoded, files, names)
            self._batch = (number, self._waiting.pop(number).result())
        return self._batch[1]

    def _forget(self) -> None:
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()
        self._batch = (-1, [])

    def _file(self, index: int) -> pq.ParquetFile:
        """The file, which stays open for its other columns until another one is asked for."""
        if self._opened is None or self._opened[0] != index:
            path = self._path(index)
            try:
                self._opened = (index, _open(path))
            except (pa.ArrowException, OSError) as error:
                words = f"{path} changed while it was being read: {error}"
                raise SchemaError(words, hint="Leave the folder alone and try again.") from error
        return self._opened[1]

    def _path(self, index: int) -> Path:
        return self._paths[index] / f"{self.stem}.parquet"


def decoded(paths: Sequence[Path], names: tuple[str, ...]) -> list[bytes | None]:
    """These columns of some files as Arrow streams; None for a file that cannot be read so. Run by a worker."""
    out: list[bytes | None] = []
    for path in paths:
        try:
            table = _columns(_open(path), names)
        except (pa.ArrowException, OSError, KeyError):
            out.append(None)  # whoever asks for this block reads it by itself, and learns why
            continue
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        out.append(sink.getvalue().to_pybytes())
    return out


def _columns(file: pq.ParquetFile, names: tuple[str, ...]) -> pa.Table:
    return file.read(columns=list(names), use_threads=False).select(list(names))


def _open(path: Path) -> pq.ParquetFile:
    # Files are small: one read of all bytes costs less than a seek for every column.
    return pq.ParquetFile(pa.BufferReader(durable.read_file(str(path))), pre_buffer=False)
