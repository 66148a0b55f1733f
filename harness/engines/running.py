"""An arm whose processes run: who they are, whether they still are, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.engines.device_memory import DeviceMemory
from harness.engines.events import OnEvent
from harness.engines.fingerprint import ProcessFingerprint
from harness.engines.ledger import Ledger
from harness.engines.logwatch import LogWatch
from harness.engines.shielding import finish_despite_cancellation
from harness.engines.teardown import StopReport, tear_down
from harness.engines.vitals import Vitals
from harness.model.findings import Finding
from harness.model.rulebook import rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a process of the arm answers: what a scraper or client needs to address it."""

    name: str
    role: str
    kind: str
    url: str
    model: str | None


class RunningArm:
    """One arm's processes, from the first spawn to the last descendant's end. Made by `launch`."""

    def __init__(
        self,
        *,
        arm: str,
        ledger: Ledger,
        void_log_patterns: Sequence[str],
        on_event: OnEvent,
        device_memory: DeviceMemory | None,
    ) -> None:
        self.arm = arm
        self.start_seconds: dict[str, float] = {}
        """Process name → seconds from its spawn until it was ready."""
        self._ledger = ledger
        self._on_event = on_event
        self._device_memory = device_memory
        self._fingerprints: tuple[ProcessFingerprint, ...] = ()
        self._vitals = Vitals(ledger)
        self._logs = {plan.name: LogWatch(ledger.log_path(plan), void_log_patterns) for plan in ledger.layout.all}
        self._stop: asyncio.Task[StopReport] | None = None

    @property
    def run_id(self) -> str:
        """Marks every process of this launch in its environment."""
        return self._ledger.run_id

    @property
    def replicas(self) -> Mapping[str, str]:
        """Replica name → base URL."""
        return {plan.name: plan.url for plan in self._ledger.layout.replicas}

    @property
    def services(self) -> Mapping[str, str]:
        """Service name → base URL."""
        return {plan.name: plan.url for plan in self._ledger.layout.services}

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All processes, services first."""
        return tuple(
            Endpoint(name=plan.name, role=plan.role, kind=plan.kind, url=plan.url, model=plan.model)
            for plan in self._ledger.layout.all
        )

    @property
    def pids(self) -> frozenset[int]:
        """Every pid seen in this arm's process trees so far."""
        return self._ledger.pids()

    def confirm(self, fingerprints: Sequence[ProcessFingerprint]) -> None:
        """All processes are ready: remember who they and their descendants are (called by `launch`)."""
        self._fingerprints = tuple(fingerprints)
        self._ledger.look()
        self._ledger.save()
        self._vitals.remember()

    def fingerprints(self) -> tuple[ProcessFingerprint, ...]:
        """What runs, as it was when everything was ready; services first."""
        return self._fingerprints

    def health_findings(self, *, thorough: bool = False) -> list[Finding]:
        """What happened since the last call: processes that died or changed, log lines that void the block.

        Rules `process.died`, `process.changed`, `process.log_pattern`. Costs less than a millisecond and the new log
        bytes; `thorough` (once, at the end of a block) also looks for a second server that joined a port.
        After `stop` it reports only what was still logged.
        """
        vitals = [] if self._stop is not None else self._vitals.findings(thorough=thorough)
        return [*vitals, *self._log_findings()]

    async def stop(self) -> StopReport:
        """End every process and descendant; a second call waits for the first one and returns its result.

        A cancelled caller still gets a whole teardown; the cancellation is raised after it.

        Raises:
            EngineError: phase `stop` (processes that are still there, named) or `device_memory`.
        """
        if self._stop is None:
            teardown = tear_down(self._ledger, on_event=self._on_event, device_memory=self._device_memory)
            self._stop = asyncio.ensure_future(teardown)
        return await finish_despite_cancellation(self._stop)

    def _log_findings(self) -> list[Finding]:
        rule_id = "process.log_pattern"
        severity = rule(rule_id).severity
        return [
            Finding(rule=rule_id, severity=severity, subject=name, detail=line[:500])
            for name, watch in self._logs.items()
            for line in watch.matches(finish=self._stop is not None)
        ]
