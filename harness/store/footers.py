"""What a Parquet footer says about schema and rows, without decoding it where it is as this program writes it.

Strategy: decoding the footer of ninety columns costs half a millisecond, comparing all bodies of a block with their
digests about one and a half. The footer begins with the schema and the number of rows (Apache Parquet's `FileMetaData`
in Thrift's compact protocol, https://parquet.apache.org/docs/file-format/metadata/), and holds the Arrow schema as
text. Where both are byte for byte those of a file that this very program makes, the schema is today's; else the footer
is decoded and every column compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from harness.store.schemas import arrow_schema, conform

_MAGIC = b"PAR1"
_ROWS_FIELD = 0x16
"""Header of the field after the schema: id one higher, type i64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is known about a stored table before any row is read."""

    rows: int = 0
    exact: bool = False
    """The file has today's schema, so that columns can be read as they stand."""
    wrong: tuple[str, ...] = ()
    """In words what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Reference:
    schema: bytes
    """The footer up to the number of rows."""
    arrow: bytes
    """The Arrow schema as the footer holds it."""


def shape_of(data: bytes, table: str) -> Shape:
    """The shape of a Parquet file's bytes against the schema of `requests`, `chunks` or `counters`."""
    footer = _footer(data)
    known = _reference(table)
    if footer is not None and footer.startswith(known.schema) and known.arrow in footer:
        rows = _rows(footer, len(known.schema))
        if rows is not None:
            return Shape(rows=rows, exact=True)
    return _decoded(data, table)


def _decoded(data: bytes, table: str) -> Shape:
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        schema, rows = file.schema_arrow, file.metadata.num_rows
        if schema.equals(arrow_schema(table), check_metadata=True):
            return Shape(rows=rows, exact=True)
        brought, wrong = conform(file.read(use_threads=False), table)
    except (pa.ArrowException, OSError) as error:
        return Shape(wrong=(f"not readable as Parquet: {error}",))
    return Shape(rows=brought.num_rows, wrong=tuple(wrong))


def _footer(data: bytes) -> bytes | None:
    """Thrift bytes of `FileMetaData`; None where the file does not end as a Parquet file does."""
    if len(data) < 12 or data[-4:] != _MAGIC or data[:4] != _MAGIC:
        return None
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8] if length <= len(data) - 12 else None


def _rows(footer: bytes, at: int) -> int | None:
    """The zigzag varint behind the schema; None where another field stands there."""
    if footer[at] != _ROWS_FIELD:
        return None
    value = shift = 0
    for byte in footer[at + 1 : at + 11]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    return None


@cache
def _reference(table: str) -> _Reference:
    """Made by writing an empty table and looking where the known number of rows (0) stands behind the schema."""
    schema = arrow_schema(table)
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    footer = _footer(data) or b""
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata.metadata or {}
    arrow = metadata.get(b"ARROW:schema", b"")
    other = _one_row(schema)
    length = next((i for i, (a, b) in enumerate(zip(footer, other, strict=False)) if a != b), 0)
    # The first byte that differs is the number of rows itself; its field header stands before it.
    prefix = footer[: max(length - 1, 0)]
    if not arrow or not prefix:
        raise RuntimeError("a footer of this Arrow release begins neither with its schema nor holds the Arrow schema")
    return _Reference(schema=prefix, arrow=arrow)


def _one_row(schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    pq.write_table(row, sink, compression="zstd")
    return _footer(sink.getvalue().to_pybytes()) or b""
