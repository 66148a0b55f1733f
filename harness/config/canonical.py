"""Canonical JSON of a screening: what a results folder keeps, and what the digest is taken over.

Keys are sorted, nothing is left out, and the digest is computed over the stored object itself. A folder written by an
older version therefore still proves its own integrity, although this version may know more fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from harness.config.issues import join
from harness.model.errors import ConfigError, Issue
from harness.model.screening import Screening

_DECODER: TypeAdapter[Screening] = TypeAdapter(Screening)


def with_digest(screening: Screening) -> Screening:
    """The same screening with the digest of its content."""
    return replace(screening, digest=_digest(_document(screening)))


def to_json(screening: Screening) -> bytes:
    """Canonical JSON, one trailing newline."""
    return orjson.dumps(screening, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def from_json(data: bytes, *, source: str = "declaration.json") -> Screening:
    """The screening of `to_json`; ConfigError where it is no such JSON or was altered since."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ConfigError(source, [Issue(path="", message=f"is no JSON: {error}")]) from error
    if not isinstance(document, dict):
        raise ConfigError(source, [Issue(path="", message="must be a JSON object")])
    try:
        screening = _DECODER.validate_json(data)
    except ValidationError as error:
        issues = [Issue(path=join("", item["loc"]), message=item["msg"]) for item in error.errors(include_url=False)]
        raise ConfigError(source, issues) from error
    if unknown := list(_lost(document, _document(screening), "")):
        message = "is not known to this version"
        raise ConfigError(source, [Issue(path=path, message=message) for path in unknown])
    if _digest(document) != screening.digest:
        message = "the content is not what was digested: the file was altered"
        raise ConfigError(source, [Issue(path="digest", message=message)])
    return screening


def _document(screening: Screening) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(orjson.dumps(screening))
    return document


def _lost(stored: object, decoded: object, path: str) -> Iterator[str]:
    """Paths of keys that decoding dropped."""
    if isinstance(stored, dict) and isinstance(decoded, dict):
        for key, value in stored.items():
            where = join(path, [key])
            if key not in decoded:
                yield where
            else:
                yield from _lost(value, decoded[key], where)
    elif isinstance(stored, list) and isinstance(decoded, list):
        for index, (one, other) in enumerate(zip(stored, decoded, strict=True)):
            yield from _lost(one, other, join(path, [index]))


def _digest(document: dict[str, Any]) -> str:
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
