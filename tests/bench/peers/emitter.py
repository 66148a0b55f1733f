"""A pre-rendered SSE server for any OpenAI client, which writes down when a request came and when it sent what.

Run by `python -m tests.bench.peers.emitter`; only the standard library, so that it starts at once. Prints its port as
the first line, later `phase N` each time the first request of phase N comes, and once more, with the number of phases,
when all has been served. Ends when its standard input is closed.

`POST /programme` with `{"phases": [{"requests", "rate", "tokens"}, …], "ttft_s", "spread_s", "streams"}` says how the
next requests are answered: the n-th to come belongs to the phase that its number falls into, gets `tokens` content
events at `rate` a second, the first one after ttft_s and a part of spread_s (a golden-ratio sequence over requests, so
that streams do not stay in step). The role event goes out in the same write as the first content, as near as engines
have it, so that it makes no difference whether a client counts it; completions have none. Events are never merged and
never skipped: where the client does not read, they wait in the socket.

A client that lies far behind is not dragged through the rest: once requests come more than `BEHIND_S` after the place
in the concurrency became free (median over one wave), what remains is answered at once with two events.

`GET /report` returns what happened since the programme was set, times in ns of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import gc
import json
import math
import os
import re
import select
import socket
import statistics
import struct
import sys
import time
from collections import deque

from tests.bench.peers.programme import Programme, Served, Stream
from tests.bench.peers.rendered import CHAT, COMPLETION, HEAD, MODELS

BEHIND_S = 0.25
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module does not name it
_GOLDEN = (math.sqrt(5) - 1) / 2
_SPIN_S = 0.0001
_SOON_S = 0.00002
_SENDS_PER_LOOK = 32
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"\r\nx-request-id: *([^\r]+)", re.IGNORECASE)


def offset_ns() -> int:
    """CLOCK_REALTIME − CLOCK_MONOTONIC, from the closest of five bracketed readings."""
    best = (1 << 62, 0)
    for _ in range(5):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        best = min(best, (after - before, real - (before + after) // 2))
    return best[1]


class Emitter:
    """One thread. All streams of a phase have one gap, so that two queues in order of time need no heap."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setblocking(False)
        # accepted sockets inherit it, and as long as one socket has it the kernel stamps every packet
        self.listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._partial: dict[int, tuple[bytes, int, bool]] = {}
        self._firsts: deque[tuple[float, Stream]] = deque()
        self._nexts: deque[tuple[float, Stream]] = deque()
        self._programme = Programme(phases=[{"requests": 1, "rate": 50, "tokens": 16}], late=[[]])
        self._offset = offset_ns()

    def run(self) -> None:
        """Serve until standard input ends."""
        self._epoll.register(self.listener.fileno(), select.EPOLLIN)
        self._epoll.register(0, select.EPOLLIN)
        while True:
            for number, _ in self._look():
                if number == 0:
                    return
                if number == self.listener.fileno():
                    self._accept()
                elif number in self._sockets:
                    self._readable(self._sockets[number])
            self._send_due()

    def _look(self) -> list[tuple[int, int]]:
        """Wait for requests until shortly before the next event is due. select() has a finer time-out than epoll."""
        due = min((queue[0][0] for queue in (self._firsts, self._nexts) if queue), default=None)
        wait = None if due is None else due - time.monotonic() - _SPIN_S
        if wait is None or wait > _SOON_S:
            select.select([self._epoll], [], [], wait)
        return self._epoll.poll(0)

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_194_304)
        self._sockets[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._readable(sock)

    def _readable(self, sock: socket.socket) -> None:
        try:
            data, ancillary, _, _ = sock.recvmsg(262_144, 64)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._drop(sock)
            return
        arrival, kernel = self._stamp(ancillary)
        before, arrival, kernel = self._partial.pop(sock.fileno(), (b"", arrival, kernel))
        whole = before + data
        head, found, body = whole.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(body) < (int(length[1]) if length else 0):
            self._partial[sock.fileno()] = (whole, arrival, kernel)
        elif head.startswith(b"POST /v1/"):
            self._begin(sock, head, body, arrival, kernel=kernel)
        else:
            self._answer(sock, head, body)

    def _stamp(self, ancillary: list[tuple[int, int, bytes]]) -> tuple[int, bool]:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack("@ll", data[:16])
                return seconds * 1_000_000_000 + nanoseconds - self._offset, True
        return time.monotonic_ns(), False

    def _begin(self, sock: socket.socket, head: bytes, body: bytes, arrival: int, *, kernel: bool) -> None:
        programme = self._programme
        index = len(programme.served)
        phase = programme.phase_of(index)
        name = _REQUEST_ID.search(head)
        served = Served(
            index=index,
            phase=phase,
            arrival_ns=arrival,
            kernel=kernel,
            request_id=name[1].decode("latin-1") if name else None,
            body=body.decode("utf-8", "replace"),
        )
        if not programme.served or programme.served[-1].phase != phase:
            sys.stdout.write(f"phase {phase}\n")
            sys.stdout.flush()
        programme.served.append(served)
        self._watch(arrival / 1e9)
        wish = programme.phases[phase]
        due = arrival / 1e9 + programme.ttft_s + programme.spread_s * (index * _GOLDEN % 1)
        rendered = COMPLETION if head.startswith(b"POST /v1/completions") else CHAT
        stream = Stream(sock=sock, rendered=rendered, served=served, tokens=int(wish["tokens"]), gap=1 / wish["rate"])
        if programme.behind:
            served.short, stream.tokens, due = True, 2, time.monotonic()
        self._write(stream, HEAD)
        # the spread makes firsts come due out of order: insertion from the right, a few steps
        place = len(self._firsts)
        while place and self._firsts[place - 1][0] > due:
            place -= 1
        self._firsts.insert(place, (due, stream))

    def _watch(self, now: float) -> None:
        """How long the place that this request takes had been free; in the first wave it always was."""
        programme = self._programme
        place = len(programme.served) - 1 - programme.streams
        if 0 <= place < len(programme.ended_at):
            programme.turnaround.append(now - programme.ended_at[place])
        if len(programme.turnaround) > max(8, programme.streams):
            programme.turnaround.popleft()
            programme.behind = programme.behind or statistics.median(programme.turnaround) > BEHIND_S

    def _send_due(self) -> None:
        firsts, nexts, monotonic = self._firsts, self._nexts, time.monotonic
        for _ in range(_SENDS_PER_LOOK):
            queue = nexts
            if not nexts or (firsts and firsts[0][0] < nexts[0][0]):
                queue = firsts
            if not queue or queue[0][0] > monotonic():
                return
            due, stream = queue.popleft()
            self._send(due, stream)

    def _send(self, due: float, stream: Stream) -> None:
        served, rendered = stream.served, stream.rendered
        stream.sent += 1
        last = stream.sent == stream.tokens
        now = time.monotonic_ns()
        if stream.sent == 1:
            delivered = self._write(stream, rendered.first)
            served.first_ns, served.first_sent_ns = now, time.monotonic_ns()
        else:
            delivered = self._write(stream, rendered.last + rendered.tail(stream.tokens) if last else rendered.content)
        if not delivered:
            return
        self._programme.late[served.phase].append(now / 1e9 - due)
        if last:
            self._finish(stream, now)
        else:
            # gaps may differ while one phase follows another, so the place is looked for from the right
            when, nexts = due + stream.gap, self._nexts
            if not nexts or nexts[-1][0] <= when:
                nexts.append((when, stream))
            else:
                place = len(nexts)
                while place and nexts[place - 1][0] > when:
                    place -= 1
                nexts.insert(place, (when, stream))

    def _finish(self, stream: Stream, now: int) -> None:
        programme, served = self._programme, stream.served
        served.last_ns, served.tokens, served.end_ns = now, stream.sent, time.monotonic_ns()
        programme.ended_at.append(now / 1e9)
        if len(programme.ended_at) == programme.total:
            sys.stdout.write(f"phase {len(programme.phases)}\n")
            sys.stdout.flush()

    def _write(self, stream: Stream, data: bytes) -> bool:
        """False where the client has gone, or reads so little that the socket is full: the stream is given up."""
        try:
            if stream.sock.send(data) == len(data):
                return True
            self._programme.blocked += 1
        except BlockingIOError:
            self._programme.blocked += 1
        except OSError:
            pass
        self._programme.ended_at.append(time.monotonic())
        self._drop(stream.sock)
        return False

    def _answer(self, sock: socket.socket, head: bytes, body: bytes) -> None:
        line = head.split(b"\r\n", 1)[0]
        status, answer = b"200 OK", b"{}"
        if line.startswith(b"POST /programme"):
            told = json.loads(body)
            self._firsts.clear()
            self._nexts.clear()
            self._programme = Programme(**told, late=[[] for _ in told["phases"]])
            self._offset = offset_ns()
            gc.collect()
            gc.freeze()
            gc.disable()
        elif line.startswith(b"GET /report"):
            answer = json.dumps(self._report()).encode()
        elif line.startswith(b"GET /v1/models"):
            answer = MODELS
        elif not line.startswith((b"GET /health", b"HEAD ", b"GET /ping")):
            status = b"404 Not Found"
        sock.setblocking(True)
        fixed = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        sock.sendall(fixed % (status, len(answer), answer))
        sock.setblocking(False)

    def _report(self) -> dict[str, object]:
        programme = self._programme
        fields = Served.__slots__
        return {
            "served": [{name: getattr(one, name) for name in fields} for one in programme.served],
            "late_p99_ns": [_p99(late) for late in programme.late],
            "blocked": programme.blocked,
            "behind": programme.behind,
            "offset_ns": self._offset,
            "offset_moved_ns": offset_ns() - self._offset,
        }

    def _drop(self, sock: socket.socket) -> None:
        number = sock.fileno()
        self._partial.pop(number, None)
        if self._sockets.pop(number, None) is not None:
            self._epoll.unregister(number)
            sock.close()


def _p99(late: list[float]) -> int | None:
    return round(sorted(late)[len(late) * 99 // 100] * 1e9) if late else None


if __name__ == "__main__":
    emitter = Emitter()
    os.set_blocking(0, False)
    sys.stdout.write(f"{emitter.listener.getsockname()[1]}\n")
    sys.stdout.flush()
    emitter.run()
