"""A scripted HTTP server in the test's own loop: a script gets each request and writes raw bytes back."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(body: object) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


def content(text: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def usage(completion: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": completion}})


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
EVENTS = (ROLE, content("Hel"), content("lo \u4e2d"), content("!", "stop"), usage(3), DONE)
ANSWER = "Hello \u4e2d!"
STREAM = CHUNKED + b"".join(chunk(one) for one in EVENTS) + END


@dataclass
class Peer:
    """One accepted connection and the request it is at."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes = b""
    body: bytes = b""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Until the client has closed its side."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            return

    async def next_request(self) -> bool:
        try:
            self.head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        length = next(
            (int(line[15:]) for line in self.head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        self.body = await self.reader.readexactly(length)
        return True


Script = Callable[[Peer], Awaitable[object]]


@dataclass
class Server:
    url: str
    connections: int = 0
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)
    closed: int = 0
    all_closed: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serve(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Run `script` for every request of every connection; it closes the connection by closing `peer.writer`."""
    server = Server(url="")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        server.all_closed.clear()
        peer = Peer(reader, writer)
        try:
            while not writer.is_closing() and await peer.next_request():
                server.requests.append((peer.head, peer.body))
                await script(peer)
        finally:
            writer.close()
            server.closed += 1
            if server.closed == server.connections:
                server.all_closed.set()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{port}"
    try:
        yield server
    finally:
        listener.close()
        async with asyncio.timeout(5):
            if server.connections:
                await server.all_closed.wait()


def answer(data: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.send(data)

    return script


def answer_and_close(data: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.send(data)
        peer.writer.close()

    return script
