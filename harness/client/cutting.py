"""Where to cut the bytes that wait in a socket, so that each read takes the stamp of one event.

The kernel gives one stamp a read: that of the last segment the read touched. A reader that is late finds several
events waiting; reading them at once would give the earlier ones the stamp of the last. So the waiting bytes are looked
at first (MSG_PEEK) and read event by event. Cutting only chooses the size of reads: a wrong cut costs a stamp's
exactness, never a byte.
"""

from __future__ import annotations

from typing import Protocol


class Cutter(Protocol):
    """Chooses the end of the next read."""

    def end(self, waiting: bytearray, start: int, stop: int) -> int:
        """Index after the last byte of the next read, within `waiting[start:stop]`, more than `start`."""
        ...


class EventCutter:
    """Cuts plain text after a blank line. What follows the last event (the tail of an HTTP chunk) goes with it."""

    _TAIL = 16

    def end(self, waiting: bytearray, start: int, stop: int) -> int:
        """See `Cutter.end`."""
        found = waiting.find(b"\n\n", start, stop)
        cut = found + 2
        if found < 0:
            found = waiting.find(b"\r\n\r\n", start, stop)
            cut = found + 4
        return stop if found < 0 or stop - cut <= self._TAIL else cut


class RecordCutter:
    """Cuts ciphertext after a TLS record: 5 bytes of header, the last two of them its length. One write, one record."""

    _HEADER = 5

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0

    def end(self, waiting: bytearray, start: int, stop: int) -> int:
        """See `Cutter.end`."""
        if not self._left:
            missing = self._HEADER - len(self._head)
            self._head += waiting[start : min(start + missing, stop)]
            if len(self._head) < self._HEADER:
                return stop
            self._left = missing + int.from_bytes(self._head[3:], "big")
            self._head.clear()
        cut = min(start + self._left, stop)
        self._left -= cut - start
        return cut
