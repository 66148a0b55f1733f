"""From the kernel's realtime stamps to the monotonic clock.

CLOCK_REALTIME and CLOCK_MONOTONIC are slewed together, so their difference is constant but for steps (settimeofday, an
NTP step, a leap second). It is read before and after every request; a change is a step, and kernel stamps of that
request are not used then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

STEP_TOLERANCE_NS = 50_000
"""Smaller changes of the offset than this are reading errors, not steps."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """realtime − monotonic in ns, and the width of the bracket it was read in (twice the largest error)."""

    offset_ns: int
    bracket_ns: int


def read_offset(tries: int = 5) -> ClockOffset:
    """Read the offset between two monotonic readings; the narrowest of `tries` brackets wins (about 0.2 µs wide)."""
    best: ClockOffset | None = None
    for _ in range(tries):
        before = time.monotonic_ns()
        realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.monotonic_ns()
        if best is None or after - before < best.bracket_ns:
            best = ClockOffset(realtime - (before + after) // 2, after - before)
    if best is None:
        raise ValueError("tries must be at least 1")
    return best


def clock_step(before: ClockOffset, after: ClockOffset) -> int:
    """Change of realtime − monotonic in ns; 0 where it is within what two brackets can hide."""
    step = after.offset_ns - before.offset_ns
    return step if abs(step) > (before.bracket_ns + after.bracket_ns) // 2 else 0
