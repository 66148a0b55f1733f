"""The replica's connection to the cache service: HTTP/1.1 with kept-alive connections and whole bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

LIMIT = 64 * 1024


class CacheUnreachableError(ConnectionError):
    """The cache service refused, hung up, or answered something that is no HTTP."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, lower-case headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpClient:
    """Requests to one origin; each runs on a connection of its own while it lasts."""

    def __init__(self, origin: str) -> None:
        parts = urlsplit(origin)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a body, return the whole reply."""
        return await self._exchange("POST", path, body, headers or {})

    async def get(self, path: str) -> Reply:
        """Fetch a path."""
        return await self._exchange("GET", path, b"", {})

    async def _exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._host}:{self._port}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            reader, writer = await self._connection()
        except OSError as error:
            raise CacheUnreachableError(str(error)) from error
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)
            reply = await _read_reply(reader)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise CacheUnreachableError(str(error) or type(error).__name__) from error
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return reply

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not writer.is_closing() and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port, limit=LIMIT)

    def close(self) -> None:
        """Hang up idle connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def _read_reply(reader: asyncio.StreamReader) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Reply(status, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
