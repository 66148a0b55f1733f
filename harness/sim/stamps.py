"""Ground truth: when each event was really written. Kept in memory, written to a file when nothing runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import orjson

FLUSH_AT = 200_000


class Stamp(NamedTuple):
    """One SSE event, stamped right before its write. Nanoseconds; `due_ns` is monotonic, null where none was set."""

    request_id: str
    event: int
    kind: str
    mono_ns: int
    real_ns: int
    due_ns: int | None


class StampLog:
    """Stamps of one process as JSON lines; without a path it records nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: list[Stamp] = []
        if path is not None:
            path.write_bytes(b"")

    def add(self, request_id: str, index: int, kind: str, due_ns: int | None) -> int:
        """Stamp now; the monotonic nanoseconds."""
        now = time.monotonic_ns()
        if self._path is not None:
            self._rows.append(Stamp(request_id, index, kind, now, time.time_ns(), due_ns))
        return now

    def flush(self, *, idle: bool = True) -> None:
        """Write what has gathered, if nothing runs or memory asks for it."""
        if self._path is None or not self._rows or not (idle or len(self._rows) > FLUSH_AT):
            return
        rows, self._rows = self._rows, []
        with self._path.open("ab") as file:
            file.write(b"".join(orjson.dumps(row._asdict()) + b"\n" for row in rows))
