"""payloads.json of a block, parsed only when somebody asks: a thousand blocks hold hundreds of thousand payloads."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from harness.store import durable

Fields = Mapping[str, Mapping[str, Any]]


class StoredPayloads(Mapping[str, Mapping[str, Any]]):
    """payload_id → fields of `harness.model.payload.Payload` as stored; empty where the file is absent or no JSON.

    `copy.copy` gives all of them as a plain dictionary, in one reading of the file. The two blocks of a pair hold the
    same file: as long as one follows the other, the fields are parsed once and shared.
    """

    def __init__(self, path: Path, latest: LatestPayloads) -> None:
        self._path = path
        self._latest = latest

    def __copy__(self) -> Fields:
        return self._latest.fields(self._path)

    def items(self) -> ItemsView[str, Mapping[str, Any]]:
        """All of them, in one reading of the file."""
        return self._latest.fields(self._path).items()

    def __getitem__(self, payload_id: str) -> Mapping[str, Any]:
        return self._latest.fields(self._path)[payload_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._latest.fields(self._path))

    def __len__(self) -> int:
        return len(self._latest.fields(self._path))


class LatestPayloads:
    """The file that was parsed last: whoever walks over many blocks asks for one after the other."""

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._fields: Fields = {}
        self._where: tuple[Path, int] | None = None

    def fields(self, path: Path) -> Fields:
        """What that file holds."""
        try:
            where = (path, path.stat().st_mtime_ns)
            if where != self._where:
                data = durable.read_file(str(path))
                if data != self._data:
                    self._fields = _parsed(data)
                self._data, self._where = data, where
        except OSError:
            return {}  # the manifest's list of files has already said so
        return self._fields


def _parsed(data: bytes) -> Fields:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}  # the manifest's digest has already said so
    if isinstance(value, list):
        return {item["payload_id"]: item for item in value}
    return value if isinstance(value, dict) else {}
