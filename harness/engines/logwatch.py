"""Log lines that void a block, found as the log grows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

MAX_LINE_BYTES = 64 * 1024


class LogWatch:
    """Reads a log file from where it stopped last time and returns the lines that match a pattern.

    A line counts once it is complete (newline seen) or longer than 64 KiB; `finish` takes the unfinished rest too.
    """

    def __init__(self, path: Path, patterns: Sequence[str]) -> None:
        self._path = path
        self._pattern = re.compile("|".join(f"(?:{pattern})" for pattern in patterns)) if patterns else None
        self._offset = 0
        self._rest = b""

    def matches(self, *, finish: bool = False) -> list[str]:
        """New matching lines since the last call, undecodable bytes replaced."""
        if self._pattern is None:
            return []
        lines = self._new_lines(finish=finish)
        return [line for line in lines if self._pattern.search(line)]

    def _new_lines(self, *, finish: bool) -> list[str]:
        try:
            with self._path.open("rb") as log:
                log.seek(self._offset)
                data = log.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        if finish or len(rest) > MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        return [line.decode("utf-8", errors="replace").rstrip("\r") for line in lines]
