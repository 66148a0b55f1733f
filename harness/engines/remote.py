"""Processes driven by declared commands (another host, a scheduler): argv lists without a shell, each with a time-out.

Output goes to a log file, not to a pipe: a start command may leave a daemon behind that keeps its output open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.engines import tree
from harness.engines.layout import ProcessPlan
from harness.engines.processes import LocalProcess
from harness.model.errors import EngineError
from harness.model.screening import Commands

STATUS_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteProcess:
    """A process behind start / stop / status commands."""

    plan: ProcessPlan
    commands: Commands
    env: Mapping[str, str]
    """The whole environment of the commands, launch marker included: what a local start command leaves is ours."""
    log_path: Path

    async def check_down(self) -> None:
        """EngineError(phase="already_running") where `status` says that it is up before its start."""
        if await self.is_up():
            raise EngineError(
                f"{self.plan.name}: its status command says it is up before the start",
                phase="already_running",
                hint="A block needs a fresh process: stop it first.",
            )

    async def start(self) -> None:
        """Run `start` to its end; EngineError(phase="start_command") where it fails."""
        code, tail = await self._run(self.commands.start, self.plan.start_timeout_s)
        if code != 0:
            raise EngineError(
                f"{self.plan.name}: start command {_ended(code, self.plan.start_timeout_s)}",
                phase="start_command",
                process_exit=code,
                log_tail=tail,
            )

    async def is_up(self) -> bool:
        """True where `status` exits 0 within its time-out."""
        code, _ = await self._run(self.commands.status, STATUS_TIMEOUT_S)
        return code == 0

    async def stop(self) -> None:
        """Run `stop`, then demand that `status` no longer exits 0; EngineError(phase="stop") otherwise."""
        code, tail = await self._run(self.commands.stop, self.plan.stop_timeout_s)
        if code != 0:
            raise EngineError(
                f"{self.plan.name}: stop command {_ended(code, self.plan.stop_timeout_s)}",
                phase="stop",
                process_exit=code,
                log_tail=tail,
            )
        if await self.is_up():
            raise EngineError(f"{self.plan.name}: its status command still exits 0 after the stop", phase="stop")

    async def _run(self, argv: tuple[str, ...], timeout_s: float) -> tuple[int | None, str]:
        """(exit code or None for a time-out, log tail)."""
        child = LocalProcess.spawn(
            name=self.plan.name, argv=argv, env=self.env, cwd=self.plan.cwd, log_path=self.log_path
        )
        try:
            return await asyncio.wait_for(child.exited(), timeout_s), child.log_tail()
        except TimeoutError:
            return None, child.log_tail()
        finally:
            if child.exit_code() is None:
                await tree.end_group(child.id)
                await child.exited()


def _ended(code: int | None, timeout_s: float) -> str:
    return f"did not end within {timeout_s:.0f} s" if code is None else f"ended with exit code {code}"
