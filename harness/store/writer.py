"""One block's files: rows appended in memory, flushed between units, committed with the manifest as the last act.

Everything is written below `blocks/.NN-<arm>.partial/`, a name the reader does not match. Rows stream to temporary
Parquet files, a row group a unit, which are what a killed run leaves to look at. Sealing writes each table anew as one
row group (whoever reads a thousand blocks pays for every group of every column), waits for the disk, and writes the
manifest with the digest of every file; then the folder is renamed to `NN-<arm>`. A kill at any moment leaves either no
block or a whole one, and never touches an older block of that name (RES-2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from harness.model.rows import SCHEMA_VERSION
from harness.store import durable
from harness.store.schemas import arrow_schema, to_table

if TYPE_CHECKING:
    from types import TracebackType

FILES: Mapping[str, str] = {
    "requests": "requests",
    "warmups": "requests",
    "chunks": "chunks",
    "counters": "counters",
}
"""File stem → schema it follows."""
MANIFEST = "manifest.json"
REASON = "reason.json"


class BlockWriter:
    """Writes one block. `add` only appends to memory; call `flush` outside measured windows."""

    def __init__(self, partial: Path) -> None:
        self.path = partial
        self._rows: dict[str, list[Mapping[str, Any]]] = {stem: [] for stem in FILES}
        self._tables: dict[str, list[pa.Table]] = {stem: [] for stem in FILES}
        self._open: dict[str, pq.ParquetWriter] = {}
        with durable.storing(partial):
            partial.mkdir(parents=True)
            for name in ("logs", "metrics", "fixtures", "warmup-fixtures"):
                (partial / name).mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def logs(self) -> Path:
        """Where processes write their logs."""
        return self.path / "logs"

    def add(self, stem: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows to `requests`, `warmups`, `chunks` or `counters`, in memory."""
        self._rows[stem].extend(rows)

    def flush(self) -> None:
        """Stream what was added to the temporary files."""
        for stem, rows in self._rows.items():
            if rows:
                table = to_table(FILES[stem], rows)
                with durable.storing(self._temporary(stem)):
                    self._stream(stem).write_table(table)
                self._tables[stem].append(table)
                rows.clear()

    def put(self, name: str, data: bytes) -> None:
        """Write one more file of the block, such as `payloads.json` or a raw `/metrics` body."""
        path = self.path / name
        with durable.storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def close(self) -> None:
        """Close the temporary files without committing; the partial folder stays for `superseded/`."""
        while self._open:
            stem, writer = self._open.popitem()
            with durable.storing(self._temporary(stem)):
                writer.close()

    def seal(self, manifest: Mapping[str, Any], reason: Mapping[str, Any] | None = None) -> str:
        """Finish every file, write the reason if there is one and the manifest last; returns the manifest's SHA-256."""
        self.flush()
        counts = {stem: self._finish(stem) for stem in FILES}
        self.close()
        if reason is not None:
            self.put(REASON, durable.to_json(reason))
        with durable.storing(self.path):
            for path in (*self.path.glob("*.parquet"), *self.path.glob("*.json")):
                durable.sync_file(path)
            files = {name: durable.file_entry(Path(path)) for name, path in durable.list_files(self.path).items()}
        data = durable.to_json({"schema_version": SCHEMA_VERSION, **manifest, "rows": counts, "files": files})
        durable.write_whole(self.path / MANIFEST, data)
        with durable.storing(self.path):
            for stem in FILES:
                self._temporary(stem).unlink(missing_ok=True)
        return durable.digest(data)

    def _finish(self, stem: str) -> int:
        """Write the whole table as one row group; a table without rows is a file with a schema. Returns its rows."""
        path, schema = self.path / f"{stem}.parquet", arrow_schema(FILES[stem])
        table = pa.concat_tables([schema.empty_table(), *self._tables[stem]])
        with durable.storing(path):
            pq.write_table(table, path, compression="zstd", row_group_size=max(1, table.num_rows))
        return int(table.num_rows)

    def _temporary(self, stem: str) -> Path:
        return self.path / f".{stem}.parquet.tmp"

    def _stream(self, stem: str) -> pq.ParquetWriter:
        if stem not in self._open:
            schema: pa.Schema = arrow_schema(FILES[stem])
            self._open[stem] = pq.ParquetWriter(self._temporary(stem), schema, compression="zstd")
        return self._open[stem]
