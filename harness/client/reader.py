"""A thread that reads sockets the moment they are readable and takes the kernel's arrival stamp of each read.

Why a thread: kernel stamps survive a late reader only until the kernel merges waiting segments into one, which keeps
the last stamp alone (docs/adr/0002). An event loop that is busy for longer than the gap between two tokens would lose
the first one's stamp; this thread needs the interpreter for some ten microseconds an event and gets it at the next
switch. Only this thread closes sockets, so that a file descriptor is never reused under a read in progress.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from typing import Protocol

from harness.client import priority
from harness.client.cutting import Cutter

SO_TIMESTAMPNS = 35
"""Linux, asm-generic/socket.h; Python's socket module has no name for it. SCM_TIMESTAMPNS has the same number."""

_TIMESPEC = struct.Struct("@ll")
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size)
_BUFFER = 262_144
_TRIES = 200


class Sink(Protocol):
    """Who gets what was read. Called in the reader's thread."""

    reading: bool
    """True while the reader is at this socket: bytes may be out of the socket and not yet with the sink."""

    def on_read(self, realtime_ns: int | None, user_ns: int, data: bytes, offset_ns: int | None = None) -> bool:
        """One read with the kernel's stamp (None where it gave none); False = no more is wanted, close the socket.

        `offset_ns` is realtime − monotonic at the moment of the read.
        """
        ...

    def on_eof(self) -> None:
        """The peer closed its side; the socket is closed after this call."""
        ...

    def on_error(self, error: OSError) -> None:
        """Reading failed; the socket is closed after this call."""
        ...


class SocketReader:
    """One thread, one epoll, any number of sockets."""

    def __init__(self) -> None:
        self._holder = hold_stamping()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._watched: dict[int, tuple[socket.socket, Sink, Cutter]] = {}
        self._unwanted: list[socket.socket] = []
        self._lock = threading.Lock()
        self._stopping = False
        self._buffer = bytearray(_BUFFER)
        self._thread = threading.Thread(target=self._run, name="kvabba-reader", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and close every socket that is still watched."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        for sock, _, _ in self._watched.values():
            sock.close()
        for sock in self._unwanted:
            sock.close()
        self._watched.clear()
        if self._holder is not None:
            self._holder.close()
        self._epoll.close()
        os.close(self._wake)

    def add(self, sock: socket.socket, sink: Sink, cutter: Cutter) -> None:
        """Read this socket from now on, until its sink wants no more, it ends, or it is discarded."""
        fd = sock.fileno()
        self._watched[fd] = (sock, sink, cutter)
        self._epoll.register(fd, select.EPOLLIN)

    def discard(self, sock: socket.socket) -> None:
        """Have the thread close a watched socket. Returns at once."""
        with self._lock:
            self._unwanted.append(sock)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        priority.realtime(priority.READER)
        while not self._stopping:
            for fd, _ in self._epoll.poll():
                if fd == self._wake:
                    os.eventfd_read(self._wake)
                    self._close_unwanted()
                    continue
                watched = self._watched.get(fd)
                if watched is not None:
                    self._read(*watched)

    def _close_unwanted(self) -> None:
        with self._lock:
            unwanted, self._unwanted = self._unwanted, []
        for sock in unwanted:
            self._forget(sock)

    def _forget(self, sock: socket.socket) -> None:
        fd = sock.fileno()
        if fd < 0:
            return  # closed before
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)
        sock.close()

    def _read(self, sock: socket.socket, sink: Sink, cutter: Cutter) -> None:
        """Read all that waits, cut by cut."""
        sink.reading = True
        try:
            self._read_all(sock, sink, cutter)
        finally:
            sink.reading = False

    def _read_all(self, sock: socket.socket, sink: Sink, cutter: Cutter) -> None:
        buffer, start = self._buffer, 0
        try:
            waiting = sock.recv_into(buffer, _BUFFER, socket.MSG_PEEK)
            while start < waiting:
                end = cutter.end(buffer, start, waiting)
                data, ancillary, _, _ = sock.recvmsg(end - start, _ANCILLARY)
                user_ns = time.monotonic_ns()
                offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - user_ns
                start += len(data)
                realtime_ns: int | None = None
                if ancillary:
                    seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
                    realtime_ns = seconds * 1_000_000_000 + nanoseconds
                if not sink.on_read(realtime_ns, user_ns, data, offset_ns):
                    self._forget(sock)
                    return
        except BlockingIOError:
            return  # nothing there after all
        except Exception as error:  # noqa: BLE001 - a fault in one exchange must not end the reader of all others
            sink.on_error(error if isinstance(error, OSError) else OSError(f"fault in the client: {error!r}"))
            self._forget(sock)
            return
        if not waiting:
            sink.on_eof()
            self._forget(sock)


def hold_stamping() -> socket.socket | None:
    """A socket that keeps the kernel's stamping of arrivals switched on while it is open; None where it cannot be.

    The kernel stamps packets only while some socket asks for it, and switches that on in the background: the first
    packets after the first request for stamps may have none. So this one is opened before the first request, and a
    message to itself over loopback tells when stamps come.
    """
    if not hasattr(select, "epoll") or not hasattr(os, "eventfd"):
        return None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        holder = socket.create_connection(listener.getsockname(), timeout=1)
        try:
            holder.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            with listener.accept()[0] as peer:
                if any(_stamped(peer, holder) for _ in range(_TRIES)):
                    return holder
        except OSError:
            pass  # a system without this option
    holder.close()
    return None


def _stamped(peer: socket.socket, holder: socket.socket) -> bool:
    peer.send(b"?")
    _, ancillary, _, _ = holder.recvmsg(1, _ANCILLARY)
    if not ancillary:
        time.sleep(0.0005)
    return bool(ancillary)


def stamps_available() -> bool:
    """True where this machine can stamp TCP arrivals in the kernel (Linux)."""
    holder = hold_stamping()
    if holder is None:
        return False
    holder.close()
    return True
