"""The end of an arm: replicas, services, strays, shared memory, device memory, in this order; each step always runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from harness.engines import shm, tree
from harness.engines.device_memory import DeviceMemory, wait_released
from harness.engines.events import LaunchEvent, LaunchPhase, OnEvent
from harness.engines.layout import ProcessPlan
from harness.engines.ledger import Ledger
from harness.engines.processes import LocalProcess, ProcessId
from harness.engines.remote import RemoteProcess
from harness.engines.shm import RemovedSegment
from harness.model.errors import EngineError

KILL_S = 10.0
"""How long SIGKILL may take: a process inside an uninterruptible driver call cannot be hurried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """What a stop did."""

    seconds: float
    exit_codes: Mapping[str, int | None]
    """Per process; None for one that is driven by commands."""
    killed: tuple[ProcessId, ...]
    """Processes that did not end on SIGTERM."""
    shm_removed: tuple[RemovedSegment, ...]
    memory_wait_s: float | None
    """Until the device memory was released; None without a probe."""


async def tear_down(ledger: Ledger, *, on_event: OnEvent, device_memory: DeviceMemory | None) -> StopReport:
    """End everything in the ledger. The first problem is raised after all steps have run, the others are noted on it.

    Raises:
        EngineError: phase `stop` (processes that are still there, named) or `device_memory`.
    """
    return await _Teardown(ledger, on_event, device_memory).run()


class _Teardown:
    """One teardown in progress. No step may keep the next one from running, whatever it raises."""

    def __init__(self, ledger: Ledger, on_event: OnEvent, device_memory: DeviceMemory | None) -> None:
        self._ledger = ledger
        self._on_event = on_event
        self._device_memory = device_memory
        self._problems: list[Exception] = []
        self._killed: set[ProcessId] = set()
        self._survivors: set[ProcessId] = set()
        self._removed: tuple[RemovedSegment, ...] = ()
        self._memory_wait_s: float | None = None

    async def run(self) -> StopReport:
        started = time.monotonic()
        ledger = self._ledger
        await self._attempt(self._look())
        for plans in (ledger.layout.replicas, ledger.layout.services):
            ends = [self._attempt(self._end(plan)) for plan in plans if plan.name in ledger.started]
            await asyncio.gather(*ends)
        for step in (self._end_strays(), self._remove_shared_memory(), self._wait_for_memory()):
            await self._attempt(step)
        if self._problems:
            first, *others = self._problems
            for problem in others:
                first.add_note(f"and: {problem}")
            raise first
        ledger.forget()
        return StopReport(
            seconds=time.monotonic() - started,
            exit_codes={
                name: process.exit_code() if isinstance(process, LocalProcess) else None
                for name, process in ledger.started.items()
            },
            killed=tuple(sorted(self._killed, key=lambda identity: identity.pid)),
            shm_removed=self._removed,
            memory_wait_s=self._memory_wait_s,
        )

    async def _attempt(self, step: Awaitable[None]) -> None:
        try:
            await step
        except Exception as error:  # noqa: BLE001 - kept and raised once every step has run
            self._problems.append(error)

    async def _look(self) -> None:
        self._ledger.look()

    async def _end(self, plan: ProcessPlan) -> None:
        started = time.monotonic()
        process = self._ledger.started[plan.name]
        killed = frozenset[ProcessId]()
        await self._tell(plan, "stopping", 0.0)
        if isinstance(process, RemoteProcess):
            await process.stop()
        else:
            killed, survivors = await tree.end(
                [process.id],
                self._ledger.marker(plan.name),
                grace_s=plan.stop_timeout_s,
                kill_s=KILL_S,
                seen=self._ledger.members[plan.name],
            )
            process.exit_code()
            self._count(plan.name, killed, survivors)
        await self._tell(plan, "killed" if killed else "stopped", time.monotonic() - started)

    async def _end_strays(self) -> None:
        """What carries the run's marker but belonged to no tree: a daemon that a start command left on this machine."""
        strays = self._ledger.living() - self._survivors
        if strays:
            killed, survivors = await tree.end(strays, self._ledger.run_id, grace_s=2.0, kill_s=KILL_S)
            self._count("a start command", killed, survivors - self._survivors)
        self._ledger.reap()

    async def _remove_shared_memory(self) -> None:
        self._removed = shm.remove_own(self._ledger.pids(), self._ledger.shm_mapped)

    async def _wait_for_memory(self) -> None:
        """Not while a process of ours still lives: that it holds its memory is known."""
        if self._device_memory is not None and not self._survivors:
            pids = ", ".join(str(pid) for pid in sorted(self._ledger.pids()))
            self._memory_wait_s = await wait_released(self._device_memory, pids=f"pids {pids}")

    async def _tell(self, plan: ProcessPlan, phase: LaunchPhase, seconds: float) -> None:
        async def tell() -> None:
            self._on_event(LaunchEvent(process=plan.name, phase=phase, seconds=seconds))

        await self._attempt(tell())

    def _count(self, name: str, killed: frozenset[ProcessId], survivors: frozenset[ProcessId]) -> None:
        self._killed |= killed
        self._survivors |= survivors
        names = ", ".join(tree.describe(identity) for identity in sorted(survivors, key=lambda identity: identity.pid))
        if names:
            self._problems.append(
                EngineError(
                    f"{name}: still running after SIGKILL: {names}",
                    phase="stop",
                    hint="They hold the device; end them by hand before the next block.",
                )
            )
