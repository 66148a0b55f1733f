"""What is embedded in the page and how: JSON that cannot end its element, tables as compact columns, a strict policy.

Nothing that came from a server is ever put into the page as markup or script. The data block is of type
`application/json`, which no browser executes; its `<`, `>` and `&` are escaped, so no text can close the element.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
from markupsafe import Markup

EXACT_IN_JAVASCRIPT = 2**53
"""Larger whole numbers lose digits in a browser; they are embedded as text (the CSV is the same)."""

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
FREE_TEXT = ("answer", "expected", "failure_detail")
"""Columns whose text a server or model wrote."""


def script_json(value: Any) -> Markup:
    """JSON for a `<script type="application/json">` element, escaped so that no text can leave the element."""
    text = orjson.dumps(value).decode()
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - every character that has a meaning in HTML is escaped above


def digest_source(text: str) -> str:
    """The CSP source expression of an inline `<style>` or `<script>` with exactly this text."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def policy(*, style: str, script: str) -> str:
    """The page's content-security policy: nothing is loaded or sent; one style sheet and one script may act."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {digest_source(style)}",
            f"script-src {digest_source(script)}",
            "base-uri 'none'",
            "form-action 'none'",
        ),
    )


def columns_of(table: pa.Table) -> list[dict[str, Any]]:
    """A table as `[{"name", "values"}]`, or `{"name", "constant"}` where one value fills the column."""
    return [_column(name, table.column(name).to_pylist()) for name in table.column_names]


def columns_from_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same for a list of equal mappings (a statistics table); columns are those of the first row."""
    return [_column(name, [row[name] for row in rows]) for name in (rows[0] if rows else {})]


def neutral(text: str) -> str:
    """Free text for a CSV cell: a leading apostrophe keeps a spreadsheet from reading it as a formula (OWASP)."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _column(name: str, values: list[Any]) -> dict[str, Any]:
    safe = list(_safe(name, values))
    if safe and all(value == safe[0] and type(value) is type(safe[0]) for value in safe):
        return {"name": name, "constant": safe[0], "rows": len(safe)}
    return {"name": name, "values": safe}


def _safe(name: str, values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, bool) or value is None:
            yield value
        elif isinstance(value, int):
            yield value if abs(value) < EXACT_IN_JAVASCRIPT else str(value)
        elif isinstance(value, str):
            yield neutral(value) if name in FREE_TEXT else value
        elif isinstance(value, list | tuple):
            yield " ".join(str(item) for item in value)
        else:
            yield value
