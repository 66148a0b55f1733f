"""Arrow schemas built from `harness.model.rows`: nullable 64-bit integers, version and units in the metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from harness.model.rows import SCHEMA_VERSION, TABLES, Column

VERSION_KEY = b"kvabba.schema_version"
TABLE_KEY = b"kvabba.table"
_TYPES: Mapping[str, pa.DataType] = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "list[str]": pa.list_(pa.string()),
}


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The schema of `requests`, `chunks` or `counters`; every file of every block has exactly this one (RES-1)."""
    metadata: dict[bytes | str, bytes | str] = {VERSION_KEY: str(SCHEMA_VERSION).encode(), TABLE_KEY: table.encode()}
    return pa.schema([_field(column) for column in TABLES[table]], metadata=metadata)


def to_table(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of that schema. A row that lacks a column is a KeyError: absent must be said as None."""
    schema = arrow_schema(table)
    arrays = [_array([row[field.name] for row in rows], field) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: list[Any], field: pa.Field[Any]) -> Any:
    """Integers are taken only from integers: a conversion by type would cut fractions off without a word."""
    if field.type != pa.int64():
        return pa.array(values, type=field.type)
    array = pa.array(values)
    if array.type not in (pa.int64(), pa.null()):
        raise TypeError(f"column {field.name} must hold integers or None, not {array.type}")
    return array.cast(pa.int64())


def empty_table(table: str) -> pa.Table:
    """No rows of that schema."""
    return arrow_schema(table).empty_table()


def stored_version(schema: pa.Schema) -> int | None:
    """The schema version a file says it was written with; None where it says nothing readable."""
    raw = (schema.metadata or {}).get(VERSION_KEY, b"")
    return int(raw) if raw.isdigit() else None


def conform(stored: pa.Table, table: str) -> tuple[pa.Table, list[str]]:
    """A stored table in today's schema, and in words what is wrong with it.

    A file of an older version may lack columns that came later: they become null. In a file of today's version a
    missing, foreign or differently typed column is wrong, and a version from the future cannot be understood.
    """
    version = stored_version(stored.schema)
    if version is None or version > SCHEMA_VERSION:
        return empty_table(table), [f"schema version {version}, this program reads up to {SCHEMA_VERSION}"]
    schema = arrow_schema(table)
    if stored.schema.equals(schema):
        return stored.replace_schema_metadata(schema.metadata), []
    wrong = [f"unknown column {name}" for name in stored.column_names if name not in schema.names]
    columns = []
    for field in schema:
        column, fault = _column(stored, field, allow_missing=version < SCHEMA_VERSION)
        columns.append(column)
        wrong.extend(fault)
    return pa.table(columns, schema=schema), wrong


def _column(stored: pa.Table, field: pa.Field[Any], *, allow_missing: bool) -> tuple[Any, list[str]]:
    nothing = pa.nulls(stored.num_rows, type=field.type)
    if field.name not in stored.column_names:
        return nothing, [] if allow_missing else [f"column {field.name} is missing"]
    column = stored.column(field.name)
    if column.type.equals(field.type):
        return column, []
    return nothing, [f"column {field.name} is {column.type}, must be {field.type}"]


def _field(column: Column) -> pa.Field[Any]:
    metadata = {"meaning": column.meaning} | ({"unit": column.unit} if column.unit else {})
    return pa.field(column.name, _TYPES[column.type], nullable=True, metadata=metadata)
