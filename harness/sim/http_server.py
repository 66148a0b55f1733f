"""A small HTTP/1.1 server: arrival stamps at the first byte, writes that reach the socket when they are made.

Written for this job because a simulated replica must stamp a chunk right before its system call and must be able to
misbehave on the wire (cut a stream, split a character, reset a connection), which general servers prevent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl

import httptools

MAX_BODY = 256 * 1024 * 1024
CONNECT_NS = 2_000_000
"""A request whose first byte follows its connection this closely arrived with the connection."""


@dataclass(slots=True)
class Request:
    """One request. `arrival_ns` is monotonic: its first byte, or the connection that was opened for it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    arrival_ns: int
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class Response:
    """The answer to one request, written as the handler sees fit."""

    def __init__(self, transport: asyncio.Transport, *, keep_alive: bool) -> None:
        self._transport = transport
        self._keep_alive = keep_alive
        self.started = False
        self.finished = False

    def send(self, status: int, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        """A whole response with a Content-Length."""
        extra = {"content-length": str(len(body)), **(headers or {})}
        self._write(self._head(status, content_type, extra) + body)
        self._complete()

    def start_stream(self, status: int, content_type: str, headers: dict[str, str] | None = None) -> None:
        """The head of a chunked response."""
        self._write(self._head(status, content_type, {"transfer-encoding": "chunked", **(headers or {})}))

    def chunk(self, data: bytes) -> None:
        """One piece of a chunked response, in one write."""
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """The regular end of a chunked response."""
        self._write(b"0\r\n\r\n")
        self._complete()

    def close(self, *, reset: bool = False) -> None:
        """Hang up; `reset` sends RST, so the peer sees an error and not an end."""
        self.finished = True
        self._keep_alive = False
        sock = self._transport.get_extra_info("socket")
        if reset and sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.close()

    def _head(self, status: int, content_type: str, headers: dict[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"content-type: {content_type}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not self._keep_alive:
            lines.append("connection: close")
        self.started = True
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _write(self, data: bytes) -> None:
        """To the socket now if nothing is queued before it: event loops may defer a transport's writes."""
        if self._transport.is_closing():
            return
        sock = self._transport.get_extra_info("socket")
        if sock is not None and self._transport.get_write_buffer_size() == 0:
            try:
                sent = os.write(sock.fileno(), data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._transport.abort()
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._transport.write(data)

    def _complete(self) -> None:
        self.finished = True
        if not self._keep_alive:
            self._transport.close()


Handler = Callable[[Request, Response], Awaitable[None]]


class _Connection(asyncio.Protocol):
    """Parses one connection; requests on it are handled one after another."""

    def __init__(self, handler: Handler, connections: set[_Connection]) -> None:
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._queue: asyncio.Queue[tuple[Request, bool]] = asyncio.Queue()
        self._current: Request | None = None
        self._arrival_ns = 0
        self._reset_parts()

    def _reset_parts(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports share no base class
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._made_ns: int | None = time.monotonic_ns()
        self._connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)
        if self._current is not None:
            self._current.closed.set()
        while not self._queue.empty():
            self._queue.get_nowait()[0].closed.set()
        self._task.cancel() if self._current is None else None

    def data_received(self, data: bytes) -> None:
        self._read_ns = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400)
        except httptools.HttpParserError:
            self._refuse(400)

    def _refuse(self, status: int) -> None:
        if not self.transport.is_closing():
            Response(self.transport, keep_alive=False).send(status, b"", "text/plain")

    def on_message_begin(self) -> None:
        """httptools: first byte of a request."""
        fresh = self._made_ns is not None and self._read_ns - self._made_ns < CONNECT_NS
        self._arrival_ns = self._made_ns if fresh and self._made_ns is not None else self._read_ns
        self._made_ns = None
        self._reset_parts()

    def on_url(self, url: bytes) -> None:
        """httptools: a part of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """httptools: the head is complete."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """httptools: a part of the body."""
        self._size += len(body)
        if self._size > MAX_BODY:
            self._refuse(413)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """httptools: the request is complete."""
        url = httptools.parse_url(self._url)
        query = dict(parse_qsl((url.query or b"").decode("latin-1"), keep_blank_values=True))
        path = (url.path or b"/").decode("latin-1")
        method = self._parser.get_method().decode("latin-1")
        request = Request(method, path, query, self._headers, b"".join(self._body), self._arrival_ns)
        self._queue.put_nowait((request, self._parser.should_keep_alive()))

    async def _serve(self) -> None:
        while True:
            self._current = None
            request, keep_alive = await self._queue.get()
            self._current = request
            response = Response(self.transport, keep_alive=keep_alive)
            try:
                await self._handler(request, response)
            except Exception as error:  # noqa: BLE001 - one bad request must not take the server down
                self._fail(response, error)
            if self.transport.is_closing() or not keep_alive:
                return

    @staticmethod
    def _fail(response: Response, error: Exception) -> None:
        logging.getLogger("sim").error("request failed: %s: %s", type(error).__name__, error)
        if response.started:
            response.close(reset=True)
        else:
            response.send(500, b'{"error":{"message":"internal error","code":500}}', "application/json")


class Server:
    """A listening socket and its connections."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Bind and listen; the port that was bound."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._handler, self._connections), host, port, backlog=256
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.transport.abort()
        await asyncio.sleep(0)
