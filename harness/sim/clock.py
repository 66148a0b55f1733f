"""Waking up at a nanosecond deadline inside an event loop.

Event loop timers are good to a millisecond. Linux timerfd is good to tens of microseconds and costs no spinning, which
matters where replicas, cache service and client share two cores. Elsewhere the loop's own timers are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import heapq
import itertools
import os
import time
from collections.abc import Callable

CLOCK_MONOTONIC = 1
NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
TIMER_ABSTIME = 1
LEAD_NS = 200_000
"""How long before a deadline a step is worked off, so that only the write is left to do at the deadline."""


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


def _open_timerfd() -> tuple[ctypes.CDLL, int] | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.timerfd_create(CLOCK_MONOTONIC, NONBLOCK_CLOEXEC)
    except (OSError, AttributeError):
        return None
    return (libc, fd) if fd >= 0 else None


class Alarm:
    """A deadline that can be called off."""

    __slots__ = ("action", "deadline_ns")

    def __init__(self, deadline_ns: int, action: Callable[[], None]) -> None:
        self.deadline_ns = deadline_ns
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """The action will not run."""
        self.action = None


class Clock:
    """Deadlines on the monotonic clock for one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, Alarm]] = []
        self._timer = _open_timerfd()
        self._armed_ns = 0
        if self._timer is not None:
            self._loop.add_reader(self._timer[1], self._on_timer)

    @staticmethod
    def now() -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    @staticmethod
    def spin(deadline_ns: int) -> None:
        """Burn the last microseconds before a deadline; far deadlines and passed ones return at once."""
        if deadline_ns - time.monotonic_ns() < 2 * LEAD_NS:
            while time.monotonic_ns() < deadline_ns:
                pass

    def call_at(self, deadline_ns: int, action: Callable[[], None]) -> Alarm:
        """Run an action at the deadline, or as soon as the loop turns if it has passed."""
        alarm = Alarm(deadline_ns, action)
        heapq.heappush(self._waiting, (deadline_ns, next(self._order), alarm))
        self._arm()
        return alarm

    async def until(self, deadline_ns: int) -> None:
        """Return at the deadline, or at once if it has passed."""
        if deadline_ns <= time.monotonic_ns():
            return
        reached = asyncio.Event()
        alarm = self.call_at(deadline_ns, reached.set)
        try:
            await reached.wait()
        finally:
            alarm.cancel()

    def _arm(self) -> None:
        while self._waiting and self._waiting[0][2].action is None:
            heapq.heappop(self._waiting)
        if not self._waiting or self._waiting[0][0] == self._armed_ns:
            return
        self._armed_ns = self._waiting[0][0]
        if self._timer is None:
            delay = max(0, self._armed_ns - time.monotonic_ns()) / 1e9
            self._loop.call_later(delay, self._wake)
            return
        libc, fd = self._timer
        at = max(1, self._armed_ns)
        value = _Timespec(at // 1_000_000_000, at % 1_000_000_000)
        libc.timerfd_settime(fd, TIMER_ABSTIME, ctypes.byref(_Itimerspec(_Timespec(0, 0), value)), None)

    def _on_timer(self) -> None:
        if self._timer is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._timer[1], 8)
        self._wake()

    def _wake(self) -> None:
        now = time.monotonic_ns()
        while self._waiting and self._waiting[0][0] <= now:
            action = heapq.heappop(self._waiting)[2].action
            if action is not None:
                action()
        self._armed_ns = 0
        self._arm()

    def close(self) -> None:
        """Release the timer."""
        if self._timer is not None:
            self._loop.remove_reader(self._timer[1])
            os.close(self._timer[1])
            self._timer = None
