"""Server-sent events on the wire: framing, stamps, lateness, and the ways a stream can misbehave."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from harness.sim.clock import Clock
from harness.sim.faults import ActiveFaults
from harness.sim.http_server import Response
from harness.sim.stamps import StampLog

CONTENT_TYPE = "text/event-stream; charset=utf-8"


def cut_point(data: bytes) -> int:
    """Where to cut a write in two: inside a multi-byte character where there is one, else in the middle."""
    inside = (i for i, byte in enumerate(data) if 0x80 <= byte < 0xC0)
    return next(inside, len(data) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How late a chunk may be: `floor_ns`, or `share` of the time from the request's arrival to the deadline.

    Deadlines are absolute, so that lateness does not add up: what matters is its share of the time it spoils.
    """

    floor_ns: int
    share: float = 0.0
    arrival_ns: int = 0

    def missed(self, due_ns: int, late_ns: int) -> bool:
        """True where a chunk due then and that late is a missed deadline."""
        return late_ns > max(self.floor_ns, self.share * (due_ns - self.arrival_ns))


class EventStream:
    """The events of one response."""

    def __init__(
        self,
        response: Response,
        clock: Clock,
        log: StampLog,
        *,
        request_id: str,
        faults: ActiveFaults,
        tolerance: Tolerance,
    ) -> None:
        self._response = response
        self._clock = clock
        self._log = log
        self._request_id = request_id
        self._tolerance = tolerance
        self._end = b"\r\n" if "crlf" in faults else b"\n"
        self._ping = "ping_comments" in faults
        split = faults.get("split_utf8")
        self._gap_ns = None if split is None else round(split.number("gap_s") * 1e9)
        self._queue: deque[tuple[bytes, str, int | None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._index = 0
        self.missed = 0
        self.max_late_ns = 0
        self.ended = False

    def send(self, kind: str, payload: bytes, due_ns: int | None = None, *, name: str | None = None) -> None:
        """One event, now (or behind events whose second half is still to come)."""
        if self.ended:
            return
        head = b"" if name is None else b"event: " + name.encode() + self._end
        self._put(head + b"data: " + payload + self._end + self._end, kind, due_ns)
        if self._ping:
            self._put(b": ping" + self._end + self._end, "ping", None)

    def _put(self, data: bytes, kind: str, due_ns: int | None) -> None:
        if self._gap_ns is None:
            self._write(data, kind, due_ns)
            return
        cut = cut_point(data)
        self._queue.append((data[:cut], kind, due_ns))
        self._queue.append((data[cut:], kind + "+", None))
        if self._idle.is_set():
            self._idle.clear()
            self._pump()

    def _pump(self) -> None:
        """Write the next half, and the one after it a gap later."""
        if not self._queue:
            self._idle.set()
            return
        self._write(*self._queue.popleft())
        self._clock.call_at(self._clock.now() + (self._gap_ns or 0), self._pump)

    def _write(self, data: bytes, kind: str, due_ns: int | None) -> None:
        if due_ns is not None:
            self._clock.spin(due_ns)
        now = self._log.add(self._request_id, self._index, kind, due_ns)
        self._response.chunk(data)
        self._index += 1
        if due_ns is not None:
            late = now - due_ns
            self.max_late_ns = max(self.max_late_ns, late)
            self.missed += self._tolerance.missed(due_ns, late)

    async def drain(self) -> None:
        """Wait until every half has been written."""
        await self._idle.wait()

    def end(self) -> None:
        """The regular end of the response."""
        if not self.ended:
            self.ended = True
            self._response.end_stream()

    def cut(self, payload: bytes) -> None:
        """Half an event, then a hang-up."""
        self.ended = True
        whole = b"data: " + payload
        self._response.chunk(whole[: len(whole) // 2])
        self._response.close()

    def reset(self) -> None:
        """A reset connection."""
        self.ended = True
        self._response.close(reset=True)
