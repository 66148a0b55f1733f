"""Shared memory that dead processes of ours left in `/dev/shm`.

LMCache leaves `lmcache_kv_<pid>_<n>` behind on an ordinary SIGTERM: gigabytes of RAM over a night. Removed is only what
provably was ours: its name carries a pid of this launch, or a process of this launch had it mapped and it did not
exist before the launch. Never removed is what a living process maps or whose named pid lives.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.engines.processes import identify

SHM = Path("/dev/shm")  # noqa: S108 - the kernel's own folder, not a temporary file of ours
_NAMED = re.compile(r"^lmcache_kv_(\d+)_\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSegment:
    """One removed file: its name and the bytes it occupied."""

    name: str
    bytes: int


def mapped_by(pids: Iterable[int], folder: Path = SHM) -> frozenset[str]:
    """Names of the segments those processes map now (from /proc/PID/maps)."""
    names = set()
    prefix = f"{folder}/"
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                path = line.partition(prefix)[2]
                if path and not path.endswith("(deleted)"):
                    names.add(path)
    return frozenset(names)


def present(folder: Path = SHM) -> frozenset[str]:
    """Names of all segments that exist now."""
    return frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()


def remove_own(
    dead: Collection[int], mapped: Collection[str] = (), *, folder: Path = SHM
) -> tuple[RemovedSegment, ...]:
    """Remove segments of dead own processes.

    Args:
        dead: pids of this launch (those that turn out to live are left alone).
        mapped: names that processes of this launch had mapped and that did not exist before it.
        folder: where to look.
    """
    if not folder.is_dir():
        return ()
    candidates = [path for path in folder.iterdir() if _was_ours(path, dead) or path.name in mapped]
    if not candidates:
        return ()
    living = mapped_by(psutil.pids(), folder)
    removed = (_remove(path) for path in sorted(candidates) if path.name not in living)
    return tuple(segment for segment in removed if segment is not None)


def _was_ours(path: Path, dead: Collection[int]) -> bool:
    match = _NAMED.match(path.name)
    return match is not None and int(match.group(1)) in dead and identify(int(match.group(1))) is None


def _remove(path: Path) -> RemovedSegment | None:
    """None where somebody else removed it first: a resource tracker that outlived its process does."""
    try:
        size = path.stat().st_blocks * 512
        path.unlink()
    except FileNotFoundError:
        return None
    return RemovedSegment(name=path.name, bytes=size)
