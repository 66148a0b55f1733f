"""Connection whose reads are stamped by the kernel and taken by the reader thread.

On loopback nothing between the start of a request and its last byte sent waits for the event loop: a second
`connect_ex` sees that the connection is up, and the request leaves in one `sendmsg`. So a busy loop cannot delay a
request that has begun.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import time

from harness.client.connection import Connection, Origin
from harness.client.cutting import Cutter, EventCutter, RecordCutter
from harness.client.reader import SO_TIMESTAMPNS, SocketReader
from harness.client.tls import TlsPipe

_HANDSHAKE_READ = 65_536
_READER_TURNS = 100


class KernelConnection(Connection):
    """See the module's docstring. `Sink` of the reader thread."""

    def __init__(self, origin: Origin, *, keep: bool, reader: SocketReader) -> None:
        super().__init__(origin, keep=keep)
        self._reader = reader
        self._socket: socket.socket | None = None
        self._watched = False
        self._tls = TlsPipe(origin.context, origin.host) if origin.context else None

    async def open(self) -> None:
        """Try every address of the host in order."""
        error: OSError = OSError(errno.EHOSTUNREACH, f"{self.origin.host} has no address")
        for family, address in await self._addresses():
            try:
                self._socket = await self._connect(family, address)
                break
            except OSError as failed:
                error = failed
        else:
            raise error
        cutter: Cutter = EventCutter()
        if self._tls is not None:
            await self._shake_hands(self._tls, self._socket)
            cutter = RecordCutter()
        self._watched = True
        self._reader.add(self._socket, self, cutter)

    async def _addresses(self) -> list[tuple[int, tuple[str, int] | tuple[str, int, int, int]]]:
        """Addresses to try. A literal address needs no thread of the resolver."""
        host, port = self.origin.host, self.origin.port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            self.waited = True
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc] # INET and INET6 only

    async def _connect(self, family: int, address: tuple[str, int] | tuple[str, int, int, int]) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            code = sock.connect_ex(address)
            if code == errno.EINPROGRESS:
                code = sock.connect_ex(address)  # on loopback the handshake is over by now
            if code in (errno.EALREADY, errno.EINPROGRESS):
                self.waited = True
                code = await _connected(sock)
        except BaseException:
            sock.close()
            raise
        if code not in (0, errno.EISCONN):
            sock.close()
            raise OSError(code, f"{os.strerror(code)}: {address[0]} port {address[1]}")
        return sock

    async def _shake_hands(self, tls: TlsPipe, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.waited, received = True, b""
        try:
            while not tls.handshake(received):
                await loop.sock_sendall(sock, tls.pending())
                received = await _receive(sock)
            await loop.sock_sendall(sock, tls.pending())
        except BaseException:
            self.close()
            raise

    async def send(self, head: bytes, body: bytes) -> int:
        """One `sendmsg` where the socket's buffer takes it all; the rest waits for the socket."""
        if self._socket is None:
            raise OSError(errno.ENOTCONN, "not connected")
        parts = [self._tls.encrypt(head + body)] if self._tls else [head, body]
        at_ns = time.monotonic_ns()
        try:
            sent = self._socket.sendmsg(parts)
        except BlockingIOError:
            sent = 0
        if sent == sum(map(len, parts)):
            return at_ns
        self.waited = True
        rest = memoryview(b"".join(parts))[sent:]
        await asyncio.get_running_loop().sock_sendall(self._socket, rest)
        return time.monotonic_ns()

    def close(self) -> None:
        """Shut down at once; the reader thread closes the descriptor, if it watches it."""
        self.usable = False
        if self._socket is None:
            return
        if self._watched:
            self._reader.discard(self._socket)
        else:
            self._socket.close()

    def quiet(self) -> bool:
        """Looks into the socket itself, so that a close by the server is seen even before the reader has."""
        if not self.usable or self._socket is None:
            return False
        try:
            waiting = self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return self._settled()
        except OSError:
            return False
        return bool(waiting) and self._tls is not None  # TLS may have something to say of its own

    def _settled(self) -> bool:
        """Nothing in the socket: what the reader has just taken out may still end this connection's use."""
        for _ in range(_READER_TURNS):
            if not self.reading:
                return self.usable
            time.sleep(0)  # lets the reader have the interpreter: it needs microseconds
        return False

    def on_read(self, realtime_ns: int | None, user_ns: int, data: bytes, offset_ns: int | None = None) -> bool:
        """Decrypt where needed; called by the reader thread."""
        if self._tls is None:
            return self._take(realtime_ns, user_ns, data, len(data), offset_ns)
        try:
            plain, closed = self._tls.decrypt(data)
        except ssl.SSLError as broken:
            self.on_error(broken)
            return False
        goes_on = self._take(realtime_ns, user_ns, plain, len(data), offset_ns) if plain else True
        if closed:
            self.on_eof()
        elif goes_on and self._socket is not None and (owed := self._tls.pending()):
            self._socket.send(owed)  # answer to a key update: some bytes, far below the socket's buffer
        return goes_on and not closed


async def _receive(sock: socket.socket) -> bytes:
    received = await asyncio.get_running_loop().sock_recv(sock, _HANDSHAKE_READ)
    if not received:
        raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection in the handshake")
    return received


async def _connected(sock: socket.socket) -> int:
    """Until the socket is writable; the error of the connection, 0 where it is up."""
    loop = asyncio.get_running_loop()
    writable: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock.fileno(), _set, writable)
    try:
        await writable
    finally:
        loop.remove_writer(sock.fileno())
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
