"""Wait until ended processes have given their device memory back.

The port is free at once after a kill, the memory of a GPU is not: an arm that starts too early gets a smaller cache.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from harness.model.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What is asked and what counts as released. `clock` and `sleep` are replaced in tests."""

    probe: Callable[[], Mapping[str, int]]
    """Device name → bytes in use now; cheap, called repeatedly."""
    threshold_bytes: int
    """At most this much in use on every device counts as released."""
    timeout_s: float = 60.0
    interval_s: float = 0.2
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def wait_released(memory: DeviceMemory, *, pids: str) -> float:
    """Seconds until every device is at or below the threshold; EngineError(phase="device_memory") after the time-out.

    Args:
        memory: the probe and its threshold.
        pids: the processes that were ended, for the message.
    """
    started = memory.clock()
    while held := {device: used for device, used in memory.probe().items() if used > memory.threshold_bytes}:
        if memory.clock() - started > memory.timeout_s:
            shown = ", ".join(f"{device}: {used / 2**20:.0f} MiB" for device, used in sorted(held.items()))
            raise EngineError(
                f"device memory is still in use {memory.timeout_s:.0f} s after {pids} ended: {shown}",
                phase="device_memory",
                hint="Another process holds it, or the driver has not released it; the next arm would get less cache.",
            )
        await memory.sleep(memory.interval_s)
    return memory.clock() - started
