"""What the client itself does to a measurement, watched while requests are in flight.

A window is open while at least one request is: the garbage collector is frozen and disabled, the event loop's thread
has real-time priority where that is allowed, a cheap probe measures how late the event loop runs its timers, and the
kernel's steal time is read before and after.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from harness.client import priority

_PROBE_S = 0.002
_NOTABLE_NS = 1_000_000
"""Lags below this are the timer's own resolution and are only kept as a maximum."""
_KEPT = 4_096
_STAT = "/proc/stat"
_STEAL_FIELD = 8
"""user nice system idle iowait irq softirq steal; field 0 is the word `cpu` (proc_stat(5))."""


class Window:
    """One per client; requests enter and leave it. Not thread-safe: for the event loop's thread."""

    def __init__(self, *, freeze_gc: bool) -> None:
        self._freeze_gc = freeze_gc
        self._depth = 0
        self._was_enabled = False
        self._thaw = False
        self._timer: asyncio.TimerHandle | None = None
        self._expected_ns = 0
        self._lags: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self._pauses: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self._pause_start_ns = 0
        self._raised = False

    @property
    def frozen(self) -> bool:
        """True while the collector is disabled by this window."""
        return self._freeze_gc and self._depth > 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Enter; the first to enter freezes, the last to leave restores."""
        self._depth += 1
        if self._depth == 1:
            self._start()
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._stop()

    def lag_ns(self, start_ns: int, end_ns: int) -> int:
        """Largest lag of the event loop that overlapped this span; 0 where none was notable."""
        return max((lag for due, lag in self._all_lags() if due <= end_ns and due + lag >= start_ns), default=0)

    def gc_pause_ns(self, start_ns: int, end_ns: int) -> int:
        """Time the garbage collector took within this span."""
        return sum(
            min(end, end_ns) - max(start, start_ns)
            for start, end in self._pauses
            if start <= end_ns and end >= start_ns
        )

    def _all_lags(self) -> Iterator[tuple[int, int]]:
        yield from self._lags
        if self._timer is not None:  # a tick that is overdue now has not run yet
            yield self._expected_ns, time.monotonic_ns() - self._expected_ns

    def _start(self) -> None:
        self._was_enabled = gc.isenabled()
        if self._freeze_gc:
            gc.disable()
            self._thaw = gc.get_freeze_count() == 0  # somebody else's frozen objects stay frozen
            if self._thaw:
                gc.freeze()
        gc.callbacks.append(self._on_gc)
        self._raised = priority.realtime(priority.LOOP)
        self._schedule(asyncio.get_running_loop())

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gc.callbacks.remove(self._on_gc)
        if self._raised:
            priority.ordinary()
        if self._freeze_gc:
            if self._thaw:
                gc.unfreeze()
            if self._was_enabled:
                gc.enable()

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._expected_ns = time.monotonic_ns() + int(_PROBE_S * 1e9)
        self._timer = loop.call_later(_PROBE_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        lag = time.monotonic_ns() - self._expected_ns
        if lag > _NOTABLE_NS:
            self._lags.append((self._expected_ns, lag))
        self._schedule(loop)

    def _on_gc(self, phase: Literal["start", "stop"], _info: dict[str, int]) -> None:
        now = time.monotonic_ns()
        if phase == "start":
            self._pause_start_ns = now
        else:
            self._pauses.append((self._pause_start_ns, now))


def steal_ns() -> int | None:
    """CPU time that the hypervisor took from all cores since boot, in ns; None where the system does not say."""
    try:
        with open(_STAT, "rb", buffering=0) as stat:  # noqa: PTH123 - read around every request: unbuffered
            fields = stat.read(512).split(b"\n", 1)[0].split()
        return int(fields[_STEAL_FIELD]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None
