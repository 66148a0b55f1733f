"""Limits of the control groups this process lives in (versions 1 and 2, and both mounted together)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60
"""Version 1 writes a huge number where there is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """None = no limit, or not known."""

    version: int | None
    """2, 1, or None without control groups."""
    memory_limit: int | None
    """Bytes: the smallest limit on the way to the root."""
    memory_free: int | None
    """Bytes left under that limit; page cache that can be given back counts as free."""
    cpus: float | None
    """CPU quota in cores."""


def limits(root: Path = Path("/")) -> CgroupLimits:
    """Read the limits that apply to this process. `root` is `/` except in tests."""
    groups = _groups(root)
    memory = _memory(root, groups)
    version = None if not groups else (1 if "memory" in groups else 2)
    return CgroupLimits(
        version=version,
        memory_limit=min((limit for limit, _ in memory), default=None),
        memory_free=min((limit - used for limit, used in memory), default=None),
        cpus=_cpus(root, groups),
    )


def _groups(root: Path) -> dict[str, str]:
    """Controller → path of our group; the unified hierarchy has the controller ``""``."""
    groups = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _memory(root: Path, groups: dict[str, str]) -> list[tuple[int, int]]:
    """(limit, used) in bytes of every limited group on the way to the root."""
    if "memory" in groups:
        base, names = (
            root / "sys/fs/cgroup/memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        )
        path = groups["memory"]
    else:
        base, names = _unified(root), ("memory.max", "memory.current", "inactive_file")
        path = groups.get("", "/")
    found = []
    for folder in _upwards(base, path):
        limit, used = _number(folder / names[0]), _number(folder / names[1])
        if limit is not None and used is not None and limit < _UNLIMITED:
            reclaimable = _statistic(folder / "memory.stat", names[2])
            found.append((limit, max(0, used - reclaimable)))
    return found


def _cpus(root: Path, groups: dict[str, str]) -> float | None:
    quotas = []
    if "cpu" in groups:
        for folder in _upwards(root / "sys/fs/cgroup/cpu", groups["cpu"]):
            quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
            if quota is not None and quota > 0 and period:
                quotas.append(quota / period)
    for folder in _upwards(_unified(root), groups.get("", "/")):
        words = _text(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit():
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _unified(root: Path) -> Path:
    """Mount point of version 2: beside version 1 it is called `unified`."""
    both = root / "sys/fs/cgroup/unified"
    return both if both.is_dir() else root / "sys/fs/cgroup"


def _upwards(base: Path, path: str) -> Iterator[Path]:
    """The group's folder and every parent up to the mount point. Inside a namespace the path may not exist below it."""
    folder = base / path.lstrip("/")
    while folder != base:
        yield folder
        folder = folder.parent
    yield base


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _statistic(path: Path, name: str) -> int:
    """One line of `memory.stat`; a missing line means that nothing can be given back."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
