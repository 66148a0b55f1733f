"""Server-sent events from byte reads, without I/O, after the WHATWG rules (html.spec.whatwg.org, "event stream").

Strategy: bytes are cut into lines at CR, LF and CRLF only, and a line is decoded once it is whole. So a character that
is split across reads is never decoded in halves, and U+2028, U+2029 and U+0085 stay content. A CR ends its line at
once (the event is complete when the CR has arrived); a LF that follows, in whatever later read, is swallowed.

Two deliberate differences from a browser: bytes that are no UTF-8 are an error, never U+FFFD, and comments are
reported (as pings), because the client counts what it received.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event, or a comment line. `name` is the event type ("message" where the server gave none)."""

    data: str
    name: str = "message"
    comment: bool = False


class SseDecoder:
    """Feed reads in order; each call returns the events that this read completed.

    `error` is set once bytes were no UTF-8; nothing after them is decoded. `unfinished()` tells what was left at the
    end of the stream: such a fragment is never dispatched.
    """

    __slots__ = ("_data", "_fragments", "_name", "_skip_lf", "_start", "error")

    def __init__(self) -> None:
        self.error: str | None = None
        self._fragments: list[bytes] = []
        self._skip_lf = False
        self._start = True
        self._data: list[str] = []
        self._name = ""

    def feed(self, read: bytes) -> list[SseEvent]:
        """Decode one read. Any split of the same bytes into reads gives the same events."""
        if not read or self.error is not None:
            return []
        if self._skip_lf:
            self._skip_lf = False
            if read[:1] == b"\n":
                read = read[1:]
        self._fragments.append(read)
        if b"\n" not in read and b"\r" not in read:
            return []
        whole = b"".join(self._fragments)
        *lines, rest = _LINE_END.split(whole)
        self._fragments = [rest] if rest else []
        self._skip_lf = whole.endswith(b"\r")
        return self._take(lines)

    def unfinished(self) -> bytes | None:
        """What the stream ended in the middle of: an unended line, or fields without their blank line. Else None."""
        rest = b"".join(self._fragments)
        if rest == _BOM and self._start:
            rest = b""
        if rest or self._data:
            return b"\n".join([*(f"data: {line}".encode() for line in self._data), rest])
        return None

    def _take(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for raw in lines:
            if self._start:
                self._start = False
                raw = raw.removeprefix(_BOM)  # noqa: PLW2901 - the first line of the stream without its mark
            if not raw:
                self._dispatch(events)
                continue
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as broken:
                self.error = f"bytes that are no UTF-8 ({broken.reason}): {raw[:80]!r}"
                self._fragments = []
                break
            self._field(line, events)
        return events

    def _field(self, line: str, events: list[SseEvent]) -> None:
        field, _, value = line.partition(":")
        if not field:
            events.append(SseEvent(value.removeprefix(" "), name="comment", comment=True))
        elif field == "data":
            self._data.append(value.removeprefix(" "))
        elif field == "event":
            self._name = value.removeprefix(" ")
        # `id`, `retry` and unknown fields have no meaning for a single response

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append(SseEvent("\n".join(self._data), name=self._name or "message"))
            self._data = []
        self._name = ""
