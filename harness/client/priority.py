"""Real-time priority for the threads that take stamps, where the system allows it.

A busy machine otherwise lets the reader wait for milliseconds behind other processes. Niceness would not help: with
automatic task groups it only counts within one session. Children never inherit the priority, so engines run as usual.
"""

from __future__ import annotations

import os
import threading

READER = 12
LOOP = 10
"""Above the simulated engines (5), which must not keep the client from its stamps on a small machine."""


def realtime(priority: int) -> bool:
    """Put the calling thread under round-robin scheduling; False where that is not permitted."""
    policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
    try:
        os.sched_setscheduler(threading.get_native_id(), policy, os.sched_param(priority))
    except (OSError, AttributeError):  # no permission, or no such call on this system
        return False
    return True


def ordinary() -> None:
    """Put the calling thread back under the default policy; always permitted."""
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_OTHER, os.sched_param(0))
