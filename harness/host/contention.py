"""Who else used the processors while a block was measured: steal, load, pressure, other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """What happened between start and stop of a probe. CPU times are sums over all cores, in seconds."""

    wall_s: float
    cores: int
    steal_s: float
    """Time the hypervisor gave to other guests while this one wanted to run."""
    busy_s: float
    own_s: float
    """CPU time of the harness and of the processes named as own."""
    others_s: float
    """busy − own, at least 0: everybody else on this machine."""
    pressure_s: float | None
    """Time in which somebody runnable had to wait for a core (PSI `some`); None without that kernel feature."""
    load_start: float
    load_stop: float

    @property
    def others_share(self) -> float:
        """Share of all cores that others used, 0 … 1."""
        return self.others_s / (self.wall_s * self.cores) if self.wall_s else 0.0

    @property
    def steal_share(self) -> float:
        """Share of all cores that was stolen, 0 … 1."""
        return self.steal_s / (self.wall_s * self.cores) if self.wall_s else 0.0


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    steal: float
    busy: float
    pressure: float | None
    load: float


class ContentionProbe:
    """Two readings, one before and one after; nothing runs in between."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._own: dict[int, tuple[float, float]] = {}
        self._before = self._read()

    def start(self, own: Iterable[int] = ()) -> None:
        """First reading. `own` are the pids of the replicas and services; this process is added."""
        self._own = {pid: times for pid in {os.getpid(), *own} if (times := _cpu_time(pid)) is not None}
        self._before = self._read()

    def stop(self, own: Iterable[int] = ()) -> Contention:
        """Second reading, while the own processes still run; `own` adds pids that came since the start."""
        after = self._read()
        before = self._before
        own_s = sum(self._used(pid) for pid in {*self._own, *own})
        busy_s = max(0.0, after.busy - before.busy)
        pressure_s = None
        if after.pressure is not None and before.pressure is not None:
            pressure_s = after.pressure - before.pressure
        return Contention(
            wall_s=after.at - before.at,
            cores=psutil.cpu_count() or 1,
            steal_s=max(0.0, after.steal - before.steal),
            busy_s=busy_s,
            own_s=own_s,
            others_s=max(0.0, busy_s - own_s),
            pressure_s=pressure_s,
            load_start=before.load,
            load_stop=after.load,
        )

    def _used(self, pid: int) -> float:
        """Seconds a process used since the start; all of its time if it is newer, 0 if it has ended."""
        now, then = _cpu_time(pid), self._own.get(pid)
        if now is None:
            return 0.0
        return now[1] - then[1] if then is not None and then[0] == now[0] else now[1]

    def _read(self) -> _Reading:
        times = psutil.cpu_times()
        steal = float(getattr(times, "steal", 0.0))
        # guest time is contained in user time already
        busy = times.user + times.nice + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
        return _Reading(time.monotonic(), steal, busy, _pressure(self._root), os.getloadavg()[0])


def _cpu_time(pid: int) -> tuple[float, float] | None:
    """(creation time, CPU seconds of all threads) of a process, None where there is none."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process = psutil.Process(pid)
        times = process.cpu_times()
        return process.create_time(), times.user + times.system
    return None


def _pressure(root: Path) -> float | None:
    """Total stall of the `some` line of /proc/pressure/cpu, in seconds."""
    try:
        text = (root / "proc/pressure/cpu").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        kind, *words = line.split()
        if kind == "some":
            return next((int(word.partition("=")[2]) / 1e6 for word in words if word.startswith("total=")), None)
    return None
