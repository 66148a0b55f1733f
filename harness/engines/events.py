"""Progress of starting and stopping, for a live display and for the log of a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

LaunchPhase = Literal["port_check", "spawn", "starting", "ready", "stopping", "killed", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEvent:
    """One step of one process."""

    process: str
    phase: LaunchPhase
    seconds: float
    """Since the launch (or the stop) of this process began."""
    expected_s: float | None = None
    """How long the whole start took last time, where the caller knows."""
    detail: str = ""


OnEvent = Callable[[LaunchEvent], None]


def ignore(_event: LaunchEvent) -> None:
    """The default listener."""
