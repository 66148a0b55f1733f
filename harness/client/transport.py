"""An httpx transport that stamps raw reads before any HTTP parsing, over kernel or call-back connections.

A response is returned when it is complete: nothing of httpx runs between the first byte and the last. What was read,
and when, is in the `Exchange` that travels in `request.extensions["exchange"]` (one is made where there is none).
No retry, no redirect, no proxy, no content decoding.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from types import TracebackType
from typing import Literal, Self

import httpx

from harness.client.callback import CallbackConnection
from harness.client.connection import Connection, Origin, request_head
from harness.client.exchange import Exchange
from harness.client.kernel import KernelConnection
from harness.client.reader import SocketReader
from harness.client.settings import ClientSettings
from harness.model.observation import FailureKind

_ANSWER_AFTER_BROKEN_PIPE_S = 1.0
_PORTS = {"http": 80, "https": 443}


class StampingTransport(httpx.AsyncBaseTransport):
    """Use as the `transport` of one `httpx.AsyncClient`, within one event loop."""

    def __init__(self, settings: ClientSettings, *, stamps: Literal["kernel", "callback"]) -> None:
        self._settings = settings
        self._reader = SocketReader() if stamps == "kernel" else None
        self._idle: dict[Origin, list[Connection]] = {}
        self._context = settings.ssl_context

    async def __aenter__(self) -> Self:
        if self._reader is not None:
            self._reader.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close idle connections and stop the reader."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send, read to the end, return. Raises httpx.TransportError as httpx's own transport would."""
        exchange = request.extensions.get("exchange") or Exchange()
        head, body = request_head(request), await request.aread()
        origin = self._origin(request.url)  # raises UnsupportedProtocol
        connection = self._idle_one(origin)
        exchange.begin()
        if connection is None:
            connection = await self._connect(origin, exchange)
        else:
            exchange.reused = True
        try:
            await self._transfer(connection, exchange, head, body)
        except BaseException:
            connection.close()
            raise
        if not self._release(connection):
            connection.close()
        exchange.raise_for_failure()
        return httpx.Response(
            exchange.framing.status or 0,
            headers=exchange.framing.headers,
            stream=httpx.ByteStream(exchange.body()),
            extensions={"exchange": exchange},
        )

    async def _transfer(self, connection: Connection, exchange: Exchange, head: bytes, body: bytes) -> None:
        connection.attach(exchange)
        try:
            exchange.sent_ns = await connection.send(head, body)
            exchange.waited = connection.waited
        except OSError as broken:
            # the server may have answered before it closed (413, 401): its answer says more than our broken pipe
            connection.usable = False
            if not await exchange.wait(_ANSWER_AFTER_BROKEN_PIPE_S):
                exchange.fail(FailureKind.RESET, f"while sending: {broken}")
        await exchange.wait()

    def _idle_one(self, origin: Origin) -> Connection | None:
        """An idle connection that is still up. Chosen before the start: a request is never sent twice."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.quiet():
                connection.waited = False
                return connection
            connection.close()
        return None

    async def _connect(self, origin: Origin, exchange: Exchange) -> Connection:
        connection = self._new(origin)
        exchange.connect_start_ns = time.monotonic_ns()
        await self._open(connection, exchange)
        exchange.connected_ns = time.monotonic_ns()
        return connection

    async def _open(self, connection: Connection, exchange: Exchange) -> None:
        limit = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(limit):
                await connection.open()
        except TimeoutError:
            connection.close()
            exchange.fail(FailureKind.CONNECT_TIMEOUT, f"no connection within {limit} s")
        except OSError as failed:
            connection.close()
            exchange.fail(_connect_failure(failed), str(failed) or type(failed).__name__)
        except BaseException:
            connection.close()
            raise
        exchange.raise_for_failure()

    def _new(self, origin: Origin) -> Connection:
        keep = self._settings.connection == "reused"
        if self._reader is not None:
            return KernelConnection(origin, keep=keep, reader=self._reader)
        return CallbackConnection(origin, keep=keep)

    def _release(self, connection: Connection) -> bool:
        if not connection.usable:
            return False
        self._idle.setdefault(connection.origin, []).append(connection)
        return True

    def _origin(self, url: httpx.URL) -> Origin:
        context: ssl.SSLContext | None = None
        if url.scheme not in _PORTS:
            raise httpx.UnsupportedProtocol(f"{url.scheme or 'no scheme'}: {url}")
        if url.scheme == "https":
            self._context = self._context or ssl.create_default_context()
            context = self._context
        return Origin(url.host, url.port or _PORTS[url.scheme], context)


def _connect_failure(error: OSError) -> FailureKind:
    return FailureKind.CONNECT_TIMEOUT if isinstance(error, TimeoutError) else FailureKind.CONNECT_REFUSED
