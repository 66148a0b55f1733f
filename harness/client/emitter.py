"""A pre-rendered SSE server that writes down when it sent each event: the ground truth of calibration and benchmark.

Run as a script (`python emitter.py`); it imports only the standard library, so that it starts at once. It prints its
port as the first line, and ends when its standard input is closed. A request names its own schedule in headers:
`x-emit-events` (content chunks), `x-emit-rate` (a second), `x-emit-ttft-ms`, `x-request-id`. `GET /report` returns and
forgets `{"sent": {request id: [[monotonic ns before, after each send], …]}, "late_p99_ns", "late_max_ns"}`. Before and
after bracket the truth: they lie apart where the emitter itself was interrupted. Lateness is that of the emitter
against its own schedule, and says when the emitter, not the client, was saturated.
"""

from __future__ import annotations

import heapq
import itertools
import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
_IDENTITY = b'"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m"'
_CLOSE_TO_DUE_S = 0.0003
_LOOK_EVERY = 64
"""Sends between two looks at new requests while the schedule is tight."""


def _event(data: bytes) -> bytes:
    whole = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(whole), whole)


def _chunk(delta: bytes, finish: bytes = b"null") -> bytes:
    choice = b'"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]' % (delta, finish)
    return _event(b"{%b,%b}" % (_IDENTITY, choice))


_ROLE = _chunk(b'{"role":"assistant","content":""}')
_CONTENT = _chunk(b'{"content":" word"}')
_LAST = _chunk(b'{"content":" word"}', b'"length"')


def _tail(events: int) -> bytes:
    usage = b'"usage":{"prompt_tokens":8,"total_tokens":%d,"completion_tokens":%d}' % (events + 8, events)
    return _event(b'{%b,"choices":[],%b}' % (_IDENTITY, usage)) + _event(b"[DONE]") + b"0\r\n\r\n"


@dataclass(slots=True)
class _Stream:
    sock: socket.socket
    events: int
    gap_s: float
    close: bool
    sent: list[tuple[int, int]] = field(default_factory=list)


class Emitter:
    """One thread, one selector, a heap of what is due."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setblocking(False)
        self._selector = selectors.SelectSelector()  # its time-outs are not rounded to milliseconds
        self._due: list[tuple[float, int, _Stream]] = []
        self._order = itertools.count()
        self._sent: dict[str, list[tuple[int, int]]] = {}
        self._late: list[int] = []
        self._partial: dict[socket.socket, bytes] = {}

    def run(self) -> None:
        """Serve until standard input ends."""
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in self._look():
                if isinstance(key.fileobj, socket.socket):
                    self._readable(key.fileobj)
                else:
                    return
            self._send_due()

    def _look(self) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._due:
            return self._selector.select()
        wait = self._due[0][0] - time.monotonic() - _CLOSE_TO_DUE_S
        if wait > 0:
            return self._selector.select(wait)
        return [] if len(self._late) % _LOOK_EVERY else self._selector.select(0)

    def _readable(self, sock: socket.socket) -> None:
        if sock is self.listener:
            accepted, _ = sock.accept()
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(accepted, selectors.EVENT_READ)
            return
        try:
            data = sock.recv(1_048_576)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
            return
        whole = self._partial.pop(sock, b"") + data
        head, found, body = whole.partition(b"\r\n\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        if not found or len(body) < int(headers.get(b"content-length", b"0")):
            self._partial[sock] = whole
        elif head.startswith(b"GET /report"):
            self._report(sock)
        else:
            self._begin(sock, headers)

    def _begin(self, sock: socket.socket, headers: dict[bytes, bytes]) -> None:
        stream = _Stream(
            sock=sock,
            events=int(headers[b"x-emit-events"]),
            gap_s=1 / float(headers[b"x-emit-rate"]),
            close=headers.get(b"connection") == b"close",
        )
        self._sent[headers[b"x-request-id"].decode()] = stream.sent
        sock.send(_HEAD + (b"connection: close\r\n\r\n" if stream.close else b"\r\n") + _ROLE)
        due = time.monotonic() + float(headers[b"x-emit-ttft-ms"]) / 1e3
        heapq.heappush(self._due, (due, next(self._order), stream))

    def _send_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            due, _, stream = heapq.heappop(self._due)
            last = len(stream.sent) + 1 == stream.events
            now = time.monotonic_ns()
            try:
                stream.sock.send(_LAST if last else _CONTENT)
                stream.sent.append((now, time.monotonic_ns()))
                if last:
                    stream.sock.send(_tail(stream.events))
            except OSError:
                self._drop(stream.sock)
                continue
            self._late.append(now - int(due * 1e9))
            if not last:
                heapq.heappush(self._due, (due + stream.gap_s, next(self._order), stream))
            elif stream.close:
                self._drop(stream.sock)

    def _report(self, sock: socket.socket) -> None:
        late = sorted(self._late) or [0]
        report = {"sent": self._sent, "late_p99_ns": late[len(late) * 99 // 100], "late_max_ns": late[-1]}
        body = json.dumps(report).encode()
        self._sent, self._late = {}, []
        sock.setblocking(True)
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        self._partial.pop(sock, None)
        if sock.fileno() >= 0:
            self._selector.unregister(sock)
            sock.close()


if __name__ == "__main__":
    emitter = Emitter()
    sys.stdout.write(f"{emitter.listener.getsockname()[1]}\n")
    sys.stdout.flush()
    emitter.run()
