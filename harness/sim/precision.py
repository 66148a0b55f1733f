"""What a replica asks of its machine so that modelled deadlines are kept; late chunks tell where it was refused."""

from __future__ import annotations

import os
import struct
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

REALTIME_PRIORITY = 5
"""Below a measuring client's (10 and more), which must not wait for the engine it measures."""
HELPER_PRIORITY = REALTIME_PRIORITY - 1
"""Of threads that share the interpreter's lock with the loop: an ordinary one can be kept from a core for many
milliseconds while it holds the lock that the loop waits for."""
HELPERS = 4
LATENCY_REQUEST = Path("/dev/cpu_dma_latency")
"""The kernel's PM QoS interface: a 32-bit number of µs, in force for as long as the file is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What the machine granted, for the log; None: not asked for."""

    realtime: bool | None
    awake: bool | None

    def __str__(self) -> str:
        """Both in words."""
        words = {True: "granted", False: "not permitted", None: "not asked for"}
        return f"real-time scheduling {words[self.realtime]}, cores kept awake {words[self.awake]}"


def ask(*, realtime: bool, awake: bool, latency_request: Path = LATENCY_REQUEST) -> Granted:
    """Ask for what is wanted; it ends with the process."""
    return Granted(
        realtime=_schedule(REALTIME_PRIORITY) if realtime else None,
        awake=stay_awake(latency_request) if awake else None,
    )


def helpers() -> Executor:
    """Threads for work that takes milliseconds."""
    return ThreadPoolExecutor(HELPERS, "sim-helper", initializer=_schedule, initargs=(HELPER_PRIORITY,))


def _schedule(priority: int) -> bool:
    """Round-robin real-time scheduling for this thread; children and threads do not inherit it.

    A busy machine otherwise makes modelled deadlines late.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError:
        return False
    return True


def stay_awake(latency_request: Path) -> bool:
    """Idle cores poll instead of halting.

    A virtual machine hands a halted core back to its hypervisor; on a busy host it is milliseconds until it returns. On
    a host that gives its guests a quota of CPU time, polling spends it, and what is left of the period the guest stands
    still (docs/adr/0014): measure before asking for this.
    """
    with suppress(OSError):
        file = os.open(latency_request, os.O_WRONLY | os.O_CLOEXEC)  # stays open: closing it ends the request
        with suppress(OSError):
            return os.write(file, struct.pack("=i", 0)) > 0
        os.close(file)
    return False
