"""What the emitter was told to do, and what it saw. Standard library only: see `emitter.py`."""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field

from tests.bench.peers.rendered import Rendered


@dataclass(slots=True)
class Served:
    """One request as the emitter saw it. Content events are counted; the first and the last are stamped."""

    index: int
    phase: int
    arrival_ns: int
    """The kernel's stamp of the request's bytes (of the last segment that the first read returned)."""
    kernel: bool
    request_id: str | None
    body: str
    first_ns: int = 0
    first_sent_ns: int = 0
    """After the write of the first content event; far behind first_ns where the emitter itself was interrupted."""
    last_ns: int = 0
    tokens: int = 0
    end_ns: int = 0
    short: bool = False
    """Answered at once, because the client was far behind."""


@dataclass(slots=True)
class Stream:
    """A response in progress. `gap` in s."""

    sock: socket.socket
    rendered: Rendered
    served: Served
    tokens: int
    gap: float
    sent: int = 0


@dataclass(slots=True)
class Programme:
    """Phases as told (`requests`, `rate`, `tokens`), and everything that happened since."""

    phases: list[dict[str, float]] = field(default_factory=list)
    ttft_s: float = 0.02
    spread_s: float = 0.02
    streams: int = 1
    served: list[Served] = field(default_factory=list)
    ended_at: list[float] = field(default_factory=list)
    """Monotonic s at which requests were answered, in order."""
    turnaround: deque[float] = field(default_factory=deque)
    """s from a place in the concurrency becoming free to the request that took it, the newest wave."""
    late: list[list[float]] = field(default_factory=list)
    """s behind schedule of every write, a list for each phase."""
    blocked: int = 0
    behind: bool = False

    @property
    def total(self) -> int:
        """Requests."""
        return sum(int(phase["requests"]) for phase in self.phases)

    def phase_of(self, index: int) -> int:
        """Number of the phase; requests beyond the programme belong to the last."""
        for number, phase in enumerate(self.phases):
            index -= int(phase["requests"])
            if index < 0:
                return number
        return len(self.phases) - 1
