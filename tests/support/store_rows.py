"""Rows with every column, null where a test does not care."""

from harness.model.rows import TABLES

_FILL = {"str": "x", "int": 1, "float": 1.0, "bool": False, "list[str]": []}


def blank(table="requests", **values):
    row = {column.name: _FILL[column.type] if column.required else None for column in TABLES[table]}
    return row | values
