"""Everything a launch started, so that exactly that can be watched and ended."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from harness.engines import leftovers, shm, tree
from harness.engines.layout import Layout, ProcessPlan
from harness.engines.processes import LocalProcess, ProcessId
from harness.engines.remote import RemoteProcess

Managed = LocalProcess | RemoteProcess


class Ledger:
    """Processes of one launch: roots, every descendant ever seen, the shared memory they mapped."""

    def __init__(self, *, layout: Layout, log_dir: Path) -> None:
        self.layout = layout
        self.log_dir = log_dir
        self.run_id = uuid.uuid4().hex
        self.started: dict[str, Managed] = {}
        self.members: dict[str, set[ProcessId]] = {}
        self.shm_mapped: set[str] = set()
        self._shm_before = shm.present()

    def marker(self, name: str) -> str:
        """The environment marker of one process's tree."""
        return f"{self.run_id}/{name}"

    def log_path(self, plan: ProcessPlan) -> Path:
        """Where a process's output goes."""
        return self.log_dir / f"{plan.name}.log"

    def add(self, name: str, process: Managed) -> None:
        """Take responsibility for a process that was just started; written to disk before anything else happens."""
        self.started[name] = process
        self.members[name] = {process.id} if isinstance(process, LocalProcess) else set()
        self.save()

    def look(self) -> None:
        """Add descendants that exist by now, and the shared memory they map; `save` writes them to disk."""
        for name, process in self.started.items():
            roots = [process.id] if isinstance(process, LocalProcess) else []
            self.members[name] |= tree.descendants(roots, self.marker(name), self.members[name])
        self.shm_mapped |= shm.mapped_by(self.pids()) - self._shm_before

    def pids(self) -> frozenset[int]:
        """Every pid ever seen in a tree of this launch."""
        return frozenset(identity.pid for members in self.members.values() for identity in members)

    def living(self) -> frozenset[ProcessId]:
        """What still lives, strays with the run's marker included."""
        known = {identity for members in self.members.values() for identity in members if identity.alive()}
        return frozenset(known) | tree.marked(self.run_id)

    def locals(self) -> Iterable[tuple[ProcessPlan, LocalProcess]]:
        """Plans with the local process that runs them."""
        for plan in self.layout.all:
            process = self.started.get(plan.name)
            if isinstance(process, LocalProcess):
                yield plan, process

    def reap(self) -> None:
        """Collect descendants that were re-parented to this process and have ended; roots are collected by `Popen`."""
        roots = {process.id for process in self.started.values() if isinstance(process, LocalProcess)}
        tree.reap(identity for members in self.members.values() for identity in members - roots)

    def forget(self) -> None:
        """Everything has ended: the record on disk is no longer needed."""
        leftovers.forget(self.log_dir)

    def save(self) -> None:
        """Record what is known on disk, so that a later run can end it if this one is killed."""
        identities = {identity for members in self.members.values() for identity in members}
        leftovers.record(self.log_dir, run_id=self.run_id, identities=identities)
