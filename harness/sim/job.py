"""One request on its way through the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.sim import timing
from harness.sim.blocks import Allocation, Tokens, chain_hashes, root_hash
from harness.sim.faults import ActiveFaults, Facts
from harness.sim.generation import Output, Sampling
from harness.sim.scheduler import Sequence
from harness.sim.tier import Lease
from harness.sim.timing import TimeParams


class EngineDeadError(RuntimeError):
    """The engine ended before the request did."""


class LoadFailureError(RuntimeError):
    """The state this request was promised could not be loaded; the engine does not survive it."""


@dataclass(slots=True, eq=False)
class Job:
    """A request with its prompt, its pages and its progress. Times are monotonic nanoseconds."""

    key: int
    prompt: Tokens
    facts: Facts
    sampling: Sampling
    faults: ActiveFaults
    arrival_ns: int
    scale: float
    on_token: Callable[[Job, int, int], None]
    root: bytes = b""
    hashes: list[bytes] = field(default_factory=list)
    lease: Lease = field(default_factory=Lease)
    allocation: Allocation = field(default_factory=Allocation)
    waited: bool = False
    local: int = 0
    external: int = 0
    loadable: int = 0
    recovered: Tokens | None = None
    filled: int = 0
    output: Output | None = None
    sequence: Sequence | None = None
    admitted_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    closed: bool = False
    loading: asyncio.Task[None] | None = None
    stores: list[asyncio.Task[int | None]] = field(default_factory=list)
    finished: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def size(self) -> int:
        """Prompt tokens."""
        return len(self.prompt)

    @property
    def cached(self) -> int:
        """Prompt tokens recovered from any cache."""
        return self.local + self.external

    @property
    def planned(self) -> Output:
        """The output; known once the content has been recovered."""
        if self.output is None:
            raise RuntimeError("output is planned after recovery")
        return self.output

    def hash_blocks(self, size: int) -> None:
        """Hash the prompt's full pages; the salt enters the first."""
        ignore = self.faults.get("ignore_salt")
        salted = ignore is None or ignore.text("where") == "shared"
        self.root = root_hash(self.facts.salt.encode() if salted else b"")
        self.hashes = chain_hashes(self.prompt, size, self.root)

    def ready_ns(self, p: TimeParams, *, connector: bool) -> int:
        """When a step may take this request: front end done, slot free, state loaded."""
        front = timing.frontend_seconds(p, self.size, connector=connector)
        ready = self.arrival_ns + timing.nanoseconds(front, self.scale)
        if self.waited:
            ready = max(ready, self.admitted_ns)
        return ready + timing.nanoseconds(timing.transfer_seconds(p, self.external), self.scale)

    def fail(self, error: Exception) -> None:
        """End with an error, unless it has ended."""
        self.closed = True
        if not self.finished.done():
            self.finished.set_exception(error)
