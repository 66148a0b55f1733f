"""What layers 5 and 6 need of a running arm; `harness.wiring` plugs in the real parts, tests plug in fakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from harness.model.counting import Snapshot, WindowCounters
from harness.model.findings import Finding
from harness.model.observation import Observation

Snapshots = Mapping[str, Snapshot]
"""Target name (replica or service) → what it exposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One body on its way to one named replica."""

    key: str
    replica: str
    body: bytes
    sha256: str
    request_id: str
    time_scale: float
    timeout_s: float


class System(Protocol):
    """A started ON arm, alone on its machine."""

    @property
    def urls(self) -> Mapping[str, str]:
        """Replica name → base URL."""

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the cache services that are read."""

    @property
    def fingerprints(self) -> Mapping[str, Mapping[str, Any]]:
        """Process name → its fingerprint as plain values."""

    async def send(self, message: Message) -> Observation:
        """Send and read to the end. A failed request is an Observation, never an exception."""

    async def snapshot(self) -> Snapshots:
        """Scrape every replica and service once."""

    async def rest(self, before: Snapshots, sent: Mapping[str, int], chunks: int) -> Sequence[Finding]:
        """Counters caught up with `sent` (replica → prompt tokens), nothing running, at least `chunks` stored."""

    def difference(self, before: Snapshots, after: Snapshots) -> WindowCounters:
        """Increments of every counter of every target."""

    def health_findings(self) -> list[Finding]:
        """Died or changed processes, voiding log lines; empty where all is well."""


OpenSystem = Callable[[], AbstractAsyncContextManager[System]]
"""Starts the arm; on exit every process of it is gone."""

OnStep = Callable[[str, int, int], None]
"""(what is being done, steps done, steps in all)."""


def ignore_step(_words: str, _done: int, _total: int) -> None:
    """The default listener."""
