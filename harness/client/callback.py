"""Connection whose reads are stamped when the event loop calls back: for machines without kernel stamps.

The stamp is the first thing the callback does, but it is late by as much as the loop is.
"""

from __future__ import annotations

import asyncio
import errno
import select
import time
from typing import cast

from harness.client.connection import Connection, Origin


class CallbackConnection(Connection, asyncio.Protocol):
    """An asyncio protocol; TLS is asyncio's own."""

    def __init__(self, origin: Origin, *, keep: bool) -> None:
        super().__init__(origin, keep=keep)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    async def open(self) -> None:
        """Connect, with TLS where the origin has a context."""
        self.waited = True
        loop = asyncio.get_running_loop()
        context = self.origin.context
        await loop.create_connection(
            lambda: self,
            self.origin.host,
            self.origin.port,
            ssl=context,
            server_hostname=self.origin.host if context else None,
        )

    async def send(self, head: bytes, body: bytes) -> int:
        """Write, and wait until everything was handed to the socket."""
        if self._transport is None:
            raise OSError(errno.ENOTCONN, "not connected")
        at_ns = time.monotonic_ns()
        self._transport.write(head + body)
        if self._writable.is_set():
            return at_ns
        self.waited = True
        await self._writable.wait()
        return time.monotonic_ns()

    def close(self) -> None:
        """Abort."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def quiet(self) -> bool:
        """Asks the socket itself: the loop may not have called back yet."""
        if not self.usable or self._transport is None or self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0) or self.origin.context is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop once the connection is up."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)  # so that a pause ends when the buffer is empty

    def data_received(self, data: bytes) -> None:
        """Stamp, then take the read."""
        user_ns = time.monotonic_ns()
        if not self.on_read(None, user_ns, data) and self._transport is not None:
            self._transport.close()

    def eof_received(self) -> None:
        """The server closed its side; the loop closes ours."""
        self.on_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._writable.set()
        if exc is None:
            self.on_eof()
        else:
            self.on_error(exc if isinstance(exc, OSError) else OSError(str(exc)))

    def pause_writing(self) -> None:
        """Bytes wait in the loop's own buffer."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The last byte was handed to the socket."""
        self._writable.set()
