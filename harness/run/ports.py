"""What the runner needs of the outside world. `harness.wiring` plugs in the real parts, tests plug in fakes.

Strategy: one `Stage` starts an arm and yields a `Live` system; everything that can be done to a running arm is a method
of `Live`. So a test that replaces `Stage` runs whole screenings without a process, a socket or a clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.model.counting import Snapshot, WindowCounters
from harness.model.findings import Finding
from harness.model.observation import Observation
from harness.model.payload import Payload
from harness.model.screening import Arm

Snapshots = Mapping[str, Snapshot]
"""Target name (replica or service) → what it exposed."""


Decode = Callable[[], Observation]
"""Turns what one exchange left behind into an Observation."""
Exchange = Callable[[], Awaitable[Decode]]
"""Sends a prepared request and reads to the end; what came is decoded when the caller asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One body on its way to one named replica."""

    key: str
    replica: str
    body: bytes
    sha256: str
    request_id: str
    time_scale: float
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a replica says about its prefix cache; must be equal in all blocks."""

    block_size: int | None
    num_blocks: int | None


class Live(Protocol):
    """A started arm: every replica and service is up, is ours, and serves the declared model."""

    @property
    def urls(self) -> Mapping[str, str]:
        """Replica name → base URL."""

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the cache services that are read."""

    @property
    def fingerprints(self) -> Mapping[str, Mapping[str, Any]]:
        """Process name → its fingerprint as plain values."""

    @property
    def capacity(self) -> Mapping[str, Capacity]:
        """Replica name → its cache."""

    async def send(self, outgoing: Outgoing) -> Observation:
        """Send and read to the end. A failed request is an Observation, never an exception."""

    def prepare(self, outgoing: Outgoing) -> Exchange:
        """All of `send` that can be done beforehand; the call that is returned is its window alone."""

    async def snapshot(self) -> Snapshots:
        """Scrape every replica and service once."""

    async def quiesce(self) -> Sequence[Finding]:
        """Wait until nothing is running or waiting anywhere; what did not become quiet is a finding."""

    async def settle(self, before: Snapshots, sent: Mapping[str, int]) -> Sequence[Finding]:
        """Wait until each replica's counters have risen by the prompt tokens it was sent (replica → tokens)."""

    async def drain(self, before: Snapshots, chunks: int) -> Sequence[Finding]:
        """Wait until the cache service has finished its stores: at least `chunks` new ones, no lock, a stable count.

        Passes at once without a cache service.
        """

    def difference(self, before: Snapshots, after: Snapshots) -> WindowCounters:
        """Increments of every counter of every target."""

    def health_findings(self) -> list[Finding]:
        """Died or changed processes, voiding log lines; empty where all is well."""

    def contention(self) -> Mapping[str, Any]:
        """Who else used the processors since the arm was ready, as plain values."""

    async def raw_state(self) -> Mapping[str, bytes]:
        """File name → raw `/metrics` and `/status` bodies, for the record."""


class Stage(Protocol):
    """Starts arms from nothing and stops them to the last process."""

    def start(self, arm: Arm, logs: Path) -> AbstractAsyncContextManager[Live]:
        """Ports free → services → replicas ready; on exit the whole process tree is gone, also when cancelled.

        Raises EngineError where a part is missing, does not start, or does not stop.
        """


class Fixtures(Protocol):
    """Bodies built before any server starts."""

    def payload(self, payload_id: str) -> Payload:
        """What is known about a body."""

    def body(self, payload_id: str) -> bytes:
        """The very bytes to send."""

    def copy_to(self, folder: Path, payload_ids: Iterable[str]) -> None:
        """Lay the bodies into a block's folder, byte for byte."""

    def payloads_json(self, payload_ids: Iterable[str]) -> bytes:
        """payloads.json of a block."""


class Clock(Protocol):
    """The one monotonic clock, and wall time as a label."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""

    def utc(self) -> str:
        """Wall time, a label."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
