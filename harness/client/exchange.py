"""One request and its response as raw, stamped facts: what the transport fills inside the window, nothing else.

Inside the window only `feed` runs, once a read: HTTP framing and one tuple. Everything else, conversion of the kernel's
stamps included, happens in `settle` after the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import httpx

from harness.client.clock import STEP_TOLERANCE_NS, ClockOffset, clock_step, read_offset
from harness.client.framing import FramingError, ResponseFraming
from harness.model.observation import Failed, FailureKind, RawRead, StampSource

_READING_ERROR_NS = 1_000
"""Error of the offset between the clocks: a stamp may seem to lie that far in the future."""

_Read = tuple[int | None, int, int, bytes, int | None]
"""(kernel's stamp, realtime ns, or None; user ns, monotonic; bytes on the wire; body bytes; realtime − monotonic)."""


class Exchange:
    """Stamps are monotonic ns, None = did not happen. May be fed from another thread than the event loop's."""

    def __init__(self) -> None:
        self.framing = ResponseFraming()
        self.start_ns: int | None = None
        self.connect_start_ns: int | None = None
        self.connected_ns: int | None = None
        self.sent_ns: int | None = None
        self.waited = True
        """False where nothing between start and last byte sent waited for the event loop."""
        self.reused = False
        self.failure: Failed | None = None
        self.stamped_after_parsing = False
        """Set by the plain httpx path: stamps come after HTTP parsing."""
        self.parsed_headers_ns: int | None = None
        """Set by the plain httpx path, which sees no raw reads of the headers."""
        self.clock_step_ns = 0
        self._headers_read: int | None = None
        self._end_ns: int | None = None
        self._offset_before: ClockOffset | None = None
        self._reads: list[_Read] = []
        self._settled: list[RawRead] = []
        self._sizes: list[int] = []
        self._kernel = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Future[None] | None = None
        self._ended = False

    # --- before and inside the window ---

    def begin(self) -> None:
        """Bind to the running loop and stamp the start of the request: the last thing before connect."""
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()
        self._offset_before = read_offset()
        self.start_ns = time.monotonic_ns()

    def feed(
        self, realtime_ns: int | None, user_ns: int, data: bytes, nbytes: int, offset_ns: int | None = None
    ) -> None:
        """Take one read.

        Args:
            realtime_ns: the kernel's stamp, None where there is none.
            user_ns: monotonic ns when the process got the bytes.
            data: what was read, decrypted.
            nbytes: length on the wire.
            offset_ns: realtime − monotonic at the moment of the read, None where nobody looked.
        """
        if self._ended:
            return
        framing = self.framing
        try:
            body = framing.feed(data)
        except FramingError as broken:
            self._reads.append((realtime_ns, user_ns, nbytes, b"", offset_ns))
            self.fail(FailureKind.BAD_HTTP, str(broken))
            return
        self._reads.append((realtime_ns, user_ns, nbytes, body, offset_ns))
        if self._headers_read is None and framing.headers_done:
            self._headers_read = len(self._reads) - 1
        if framing.complete:
            self._end(None)

    def complete_parsed(self) -> None:
        """Another transport has parsed the response to its end."""
        self.framing.complete = True
        self._end(time.monotonic_ns())

    def add_body(self, user_ns: int, body: bytes) -> None:
        """Take one piece of body that another transport has parsed and that was stamped afterwards."""
        self._reads.append((None, user_ns, len(body), body, None))

    def eof(self, user_ns: int) -> None:
        """The server closed its side."""
        if self._ended:
            return
        if self.framing.eof():
            self._end(user_ns)
        elif self.framing.headers_done:
            self.fail(FailureKind.SHORT_STREAM, "the connection was closed in the middle of the response")
        else:
            words = "in the middle of the headers" if self._reads else "before a response"
            self.fail(FailureKind.RESET, f"the connection was closed {words}")

    def fail(self, kind: FailureKind, detail: str) -> None:
        """End the exchange as failed; the first reason wins."""
        if self._ended:
            return
        self.failure = Failed(kind=kind, detail=detail)
        self._end(time.monotonic_ns())

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Until the response is complete or failed; False where `timeout_s` passed first."""
        if self._done is None:
            raise RuntimeError("begin() must come before wait()")
        if not self._ended:
            await asyncio.wait([self._done], timeout=timeout_s)
        return self._ended

    def _end(self, at_ns: int | None) -> None:
        """`at_ns` None: the last read was the end."""
        self._ended = True
        self._end_ns = at_ns

    @property
    def ended(self) -> bool:
        """Complete or failed."""
        return self._ended

    def notify(self) -> None:
        """Wake who waits. Apart from the end itself, so that a connection can be put in order in between."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    # --- after the window ---

    def settle(self) -> None:
        """After the end, once: read the clocks again, convert the kernel's stamps or put the reader's in their place.

        What a reader in another thread may still add after a time-out is not seen any more.
        """
        reads = tuple(self._reads)
        before = self._offset_before
        self.clock_step_ns = clock_step(before, read_offset()) if before else 0
        arrivals = None
        if before is not None:
            steady = abs(self.clock_step_ns) <= STEP_TOLERANCE_NS
            arrivals = _converted(reads, before) if steady else _converted_across_steps(reads)
        self._kernel = arrivals is not None
        self._settled = [
            RawRead(at_ns=at_ns, user_ns=user_ns, data=body, kernel=self._kernel)
            for at_ns, (_, user_ns, _, body, _) in zip(arrivals or [read[1] for read in reads], reads, strict=True)
        ]
        self._sizes = [nbytes for _, _, nbytes, _, _ in reads]

    @property
    def first_byte_ns(self) -> int | None:
        """Arrival of the first byte of the response; None where this transport cannot see it."""
        return None if self.stamped_after_parsing or not self._settled else self._settled[0].at_ns

    @property
    def headers_ns(self) -> int | None:
        """Arrival of the read that completed the headers."""
        return self.parsed_headers_ns if self._headers_read is None else self._settled[self._headers_read].at_ns

    @property
    def end_ns(self) -> int | None:
        """Arrival of the end of the response, or when the exchange failed; None while it goes on."""
        if not self._ended:
            return None
        return self._end_ns if self._end_ns is not None else self._settled[-1].at_ns

    @property
    def stamp_source(self) -> StampSource:
        """Where the arrival stamps come from."""
        if self.stamped_after_parsing:
            return "httpx"
        return "kernel" if self._kernel else "callback"

    def raw_reads(self) -> list[RawRead]:
        """Body reads in order. Reads that share one kernel stamp were cut from one segment and are one again here."""
        merged: list[RawRead] = []
        for read in self._settled:
            if read.kernel and merged and merged[-1].at_ns == read.at_ns:
                merged[-1] = replace(merged[-1], data=merged[-1].data + read.data)
            else:
                merged.append(read)
        return merged

    def read_sizes(self) -> tuple[tuple[int, int, int], ...]:
        """(at_ns, user_ns, bytes on the wire) of the same reads as `raw_reads`."""
        merged: list[tuple[int, int, int]] = []
        for read, nbytes in zip(self._settled, self._sizes, strict=True):
            if read.kernel and merged and merged[-1][0] == read.at_ns:
                merged[-1] = (*merged[-1][:2], merged[-1][2] + nbytes)
            else:
                merged.append((read.at_ns, read.user_ns, nbytes))
        return tuple(merged)

    def body(self) -> bytes:
        """The whole body."""
        return b"".join(body for _, _, _, body, _ in self._reads)

    def raise_for_failure(self) -> None:
        """Raise the httpx exception that says the same as `failure`, for users of the transport under httpx."""
        if self.failure is None:
            return
        raise _EXCEPTIONS.get(self.failure.kind, httpx.ReadError)(self.failure.detail)


def _converted(reads: Sequence[_Read], offset: ClockOffset) -> list[int] | None:
    """Arrivals on the monotonic clock. Kernel stamps are used for a whole request or not at all: None if not.

    Every read has one, none lies after the moment the reader had the bytes, none before its predecessor.
    """
    arrivals, last = [], 0
    for realtime_ns, user_ns, _, _, _ in reads:
        if realtime_ns is None or realtime_ns < last or realtime_ns - offset.offset_ns > user_ns + _READING_ERROR_NS:
            return None
        last = realtime_ns
        arrivals.append(realtime_ns - offset.offset_ns)
    return arrivals or None


def _converted_across_steps(reads: Sequence[_Read]) -> list[int] | None:
    """Arrivals where the clocks stepped during the request, by the offset of each read; None where one has none.

    Some hosts step a guest's clock by half a millisecond ten times a second. A step moves a stamp only if it fell
    between arrival and read: then the stamp is wrong by no more than the reader seems to have been late, and
    `client_limited` looks at that. No arrival lies after its read or before its predecessor; parts of one segment stay
    together.
    """
    arrivals: list[int] = []
    stamp = None
    for realtime_ns, user_ns, _, _, offset_ns in reads:
        if realtime_ns is None or offset_ns is None:
            return None
        same = realtime_ns == stamp
        earliest = arrivals[-1] if arrivals else 0
        arrivals.append(earliest if same else max(earliest, min(realtime_ns - offset_ns, user_ns)))
        stamp = realtime_ns
    return arrivals or None


_EXCEPTIONS: dict[FailureKind, type[httpx.TransportError]] = {
    FailureKind.CONNECT_REFUSED: httpx.ConnectError,
    FailureKind.CONNECT_TIMEOUT: httpx.ConnectTimeout,
    FailureKind.BAD_HTTP: httpx.RemoteProtocolError,
    FailureKind.SHORT_STREAM: httpx.RemoteProtocolError,
    FailureKind.RESET: httpx.ReadError,
}
