"""Start one arm: ports free → services healthy → replicas ready → fingerprints. Nothing stays behind on failure."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import httpx

from harness.engines import fingerprint, http, readiness, tree
from harness.engines.device_memory import DeviceMemory
from harness.engines.events import LaunchEvent, LaunchPhase, OnEvent, ignore
from harness.engines.hash_agreement import check_hashes
from harness.engines.layout import ProcessPlan, lay_out
from harness.engines.ledger import Ledger
from harness.engines.processes import RUN_ID_VARIABLE, LocalProcess
from harness.engines.readiness import Watch
from harness.engines.remote import RemoteProcess
from harness.engines.running import RunningArm
from harness.model.errors import EngineError
from harness.model.screening import Arm, Screening


async def launch(
    screening: Screening,
    arm: Arm,
    *,
    log_dir: Path,
    project_root: Path,
    on_event: OnEvent | None = None,
    expected: Mapping[str, float] | None = None,
    device_memory: DeviceMemory | None = None,
) -> RunningArm:
    """Start every process of an arm and return when all are ready.

    Args:
        screening: the declaration.
        arm: which of its arms.
        log_dir: where `NAME.log` of every process goes; made if missing.
        project_root: working directory of the processes and root of relative paths.
        on_event: told of every step (process, phase, seconds, expected seconds).
        expected: process name → seconds its start took last time, handed through to the events.
        device_memory: asked after a stop until the devices are released; None where there are none.

    Raises:
        ConfigError: an unknown placeholder or option.
        EngineError: `phase` says what went wrong; everything already started has been ended by then. Phases:
            `missing_part`, `address`, `port_busy`, `decoy_same_model`, `decoy_other_model`, `already_running`, `spawn`,
            `start_command`, `bind_error`, `child_exited`, `foreign_listener`, `wrong_model`, `health_timeout`,
            `hash_mismatch`.
    """
    ledger = _prepare(screening, arm, log_dir=log_dir, project_root=project_root)
    layout = ledger.layout
    on_event = on_event or ignore
    running = RunningArm(
        arm=arm.name,
        ledger=ledger,
        void_log_patterns=screening.engine.void_log_patterns,
        on_event=on_event,
        device_memory=device_memory,
    )
    try:
        async with http.open_probe() as client:
            starter = _Starter(ledger, running, client, on_event, expected or {})
            await starter.start_all()
            prints = [await fingerprint.take(plan, ledger.started.get(plan.name), client) for plan in layout.all]
        running.confirm(prints)
        check_hashes(prints, shared=arm.reach == "all")
    except BaseException as error:
        await _abandon(running, error)
        raise
    return running


def _prepare(screening: Screening, arm: Arm, *, log_dir: Path, project_root: Path) -> Ledger:
    """Everything before the first await: folders, ports, command lines."""
    log_dir.mkdir(parents=True, exist_ok=True)
    layout = lay_out(screening, arm, project_root=project_root.absolute(), log_dir=log_dir.absolute())
    tree.become_subreaper()
    return Ledger(layout=layout, log_dir=log_dir.absolute())


async def _abandon(running: RunningArm, error: BaseException) -> None:
    """End what was started; a failing teardown is noted on the error that caused it, which stays the one raised."""
    try:
        await running.stop()
    except EngineError as failure:
        error.add_note(f"and the teardown failed: {failure.message}")


class _Starter:
    """One launch in progress."""

    def __init__(
        self,
        ledger: Ledger,
        running: RunningArm,
        client: httpx.AsyncClient,
        on_event: OnEvent,
        expected: Mapping[str, float],
    ) -> None:
        self._ledger = ledger
        self._running = running
        self._client = client
        self._on_event = on_event
        self._expected = expected

    async def start_all(self) -> None:
        layout = self._ledger.layout
        for plan in layout.all:
            self._tell(plan, "port_check", 0.0)
            await readiness.check_free(plan, self._client)
        await _all_or_first_error(self._start(plan) for plan in layout.services)
        await _all_or_first_error(self._start(plan) for plan in layout.replicas)

    async def _start(self, plan: ProcessPlan) -> None:
        started = time.monotonic()
        self._tell(plan, "spawn", 0.0)
        await self._spawn(plan)
        watch = Watch(
            client=self._client,
            marker=self._ledger.marker(plan.name),
            on_event=self._on_event,
            expected_s=self._expected.get(plan.name),
        )
        await readiness.wait_ready(plan, self._ledger.started.get(plan.name), watch)
        seconds = time.monotonic() - started
        self._running.start_seconds[plan.name] = seconds
        self._tell(plan, "ready", seconds)

    async def _spawn(self, plan: ProcessPlan) -> None:
        env = {**os.environ, **plan.env, RUN_ID_VARIABLE: self._ledger.marker(plan.name)}
        log_path = self._ledger.log_path(plan)
        if plan.argv is not None:
            process = LocalProcess.spawn(name=plan.name, argv=plan.argv, env=env, cwd=plan.cwd, log_path=log_path)
            self._ledger.add(plan.name, process)
        elif plan.commands is not None:
            remote = RemoteProcess(plan=plan, commands=plan.commands, env=env, log_path=log_path)
            await remote.check_down()
            # In the ledger before its start: a start command that fails half-way must still be followed by a stop.
            self._ledger.add(plan.name, remote)
            await remote.start()

    def _tell(self, plan: ProcessPlan, phase: LaunchPhase, seconds: float) -> None:
        expected_s = self._expected.get(plan.name)
        self._on_event(LaunchEvent(process=plan.name, phase=phase, seconds=seconds, expected_s=expected_s))


async def _all_or_first_error(coroutines: Any) -> None:
    """Run together; the first failure cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(_typed(coroutine)) for coroutine in coroutines]
    if not tasks:
        return
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _typed(coroutine: Coroutine[Any, Any, None]) -> None:
    await coroutine
