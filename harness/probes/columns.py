"""Arrow schemas from column names and types, written down once: an all-null column keeps its type (RES-1)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

TYPES: Mapping[str, pa.DataType] = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "list[str]": pa.list_(pa.string()),
}


def schema(columns: Mapping[str, str]) -> pa.Schema:
    """Column name → one of `TYPES`, in that order; every column may be null."""
    return pa.schema([pa.field(name, TYPES[kind]) for name, kind in columns.items()])
