"""Processes of a crashed run: found by its record on disk, and only those are ended.

A launch writes `processes.json` beside its logs and removes it after a clean stop. A record that is still there was
left by a run that was killed, unless the harness that wrote it lives: two runs may go on at once. Its processes are
known by boot, pid and start tick, and by the launch marker in their environment; anything else is left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.engines import shm, tree
from harness.engines.processes import ProcessId, identify
from harness.engines.shm import RemovedSegment
from harness.model.errors import EngineError

RECORD = "processes.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A record that was not removed, and who of it still lives."""

    record: Path
    run_id: str
    pids: frozenset[int]
    """Every pid the crashed run recorded."""
    living: frozenset[ProcessId]
    rebooted: bool
    """True where the machine was started again since: then nothing of it can live."""


def record(folder: Path, *, run_id: str, identities: Iterable[ProcessId]) -> None:
    """Write the record atomically (a crash leaves the old or the new one, never half of one)."""
    processes = sorted(_pair(identity) for identity in identities)
    text = json.dumps(
        {"boot": boot_id(), "run_id": run_id, "harness": _pair(identify(os.getpid())), "processes": processes}
    )
    temporary = folder / f".{RECORD}.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / RECORD)


def forget(folder: Path) -> None:
    """Remove the record of a launch that ended cleanly."""
    (folder / RECORD).unlink(missing_ok=True)


def find(folder: Path) -> list[Leftover]:
    """Every record under `folder`, at any depth, whose harness has ended, with what still lives of it."""
    records = (_read(path) for path in sorted(folder.rglob(RECORD)))
    return [leftover for leftover in records if leftover is not None]


async def end_all(
    folder: Path, *, grace_s: float = 5.0, kill_s: float = 10.0
) -> tuple[frozenset[ProcessId], tuple[RemovedSegment, ...]]:
    """End what crashed runs under `folder` left, remove their shared memory and their records.

    Returns:
        (ended processes, removed segments).

    Raises:
        EngineError: phase `leftovers`, where a process survives SIGKILL; its record stays.
    """
    ended: set[ProcessId] = set()
    removed: list[RemovedSegment] = []
    for leftover in find(folder):
        if leftover.living:
            _, survivors = await tree.end(leftover.living, leftover.run_id, grace_s=grace_s, kill_s=kill_s)
            if survivors:
                names = ", ".join(tree.describe(identity) for identity in sorted(survivors, key=lambda i: i.pid))
                raise EngineError(f"left over from a crashed run and cannot be ended: {names}", phase="leftovers")
            tree.reap(leftover.living)
            ended |= leftover.living
        if not leftover.rebooted:
            removed.extend(shm.remove_own(leftover.pids))
        leftover.record.unlink(missing_ok=True)
    return frozenset(ended), tuple(removed)


def boot_id() -> str:
    """The kernel's id of this boot: pids and ticks of another boot name nobody."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _pair(identity: ProcessId | None) -> list[int]:
    return [] if identity is None else [identity.pid, identity.start_ticks]


def _read(path: Path) -> Leftover | None:
    content = json.loads(path.read_text(encoding="utf-8"))
    identities = [ProcessId(pid, ticks) for pid, ticks in content["processes"]]
    rebooted = content["boot"] != boot_id()
    if not rebooted and content["harness"] and ProcessId(*content["harness"]).alive():
        return None
    living = (
        frozenset[ProcessId]()
        if rebooted
        else frozenset(i for i in identities if i.alive()) | tree.marked(content["run_id"])
    )
    return Leftover(
        record=path,
        run_id=content["run_id"],
        pids=frozenset(i.pid for i in identities),
        living=living,
        rebooted=rebooted,
    )
