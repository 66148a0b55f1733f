"""payloads.json of a block, parsed only when somebody asks: a thousand blocks hold a thousand equal ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson


class StoredPayloads(Mapping[str, Mapping[str, Any]]):
    """payload_id → fields of `harness.model.payload.Payload` as stored; empty where the file is absent or no JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def _values(self) -> Mapping[str, Mapping[str, Any]]:
        try:
            changed_ns = self._path.stat().st_mtime_ns
        except OSError:
            return {}  # the manifest's list of files has already said so
        return _parsed(self._path, changed_ns)

    def __getitem__(self, payload_id: str) -> Mapping[str, Any]:
        return self._values[payload_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@lru_cache(maxsize=4)
def _parsed(path: Path, _changed_ns: int) -> Mapping[str, Mapping[str, Any]]:
    """Only the last few stay in memory: whoever walks over many blocks asks for one after the other."""
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}  # the manifest's digest has already said so
    if isinstance(value, list):
        return {item["payload_id"]: item for item in value}
    return value if isinstance(value, dict) else {}
