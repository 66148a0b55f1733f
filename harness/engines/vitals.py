"""Whether the processes of an arm still are the ones that were made ready."""

from __future__ import annotations

import re
from pathlib import Path

from harness.engines import ports, tree
from harness.engines.layout import ProcessPlan
from harness.engines.ledger import Ledger
from harness.engines.processes import LocalProcess, ProcessId
from harness.model.findings import Finding
from harness.model.rulebook import rule

_ENGINE_TITLE = re.compile(r"EngineCore|VLLM::Worker|sglang::scheduler")
"""Descendants whose end is the engine's end; other helpers (compile workers) may come and go."""


class Vitals:
    """Compares what runs with what was ready. Each change is reported once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._engines: dict[str, frozenset[ProcessId]] = {}
        self._sockets: dict[str, frozenset[int]] = {}
        self._holders: dict[str, frozenset[Path]] = {}
        self._reported: set[tuple[str, str]] = set()

    def remember(self) -> None:
        """Everything is ready: note the descendants that must live on and the listening sockets."""
        for plan, _ in self._ledger.locals():
            members = self._ledger.members[plan.name]
            self._sockets[plan.name] = ports.listening_sockets(plan.address)
            self._holders[plan.name] = ports.holders(self._sockets[plan.name], (identity.pid for identity in members))
            self._engines[plan.name] = frozenset(i for i in members if _ENGINE_TITLE.search(tree.title(i)))

    def findings(self, *, thorough: bool) -> list[Finding]:
        """`process.died` and `process.changed` since the last call.

        Without `thorough` a listening socket that our process still holds is enough. With it the kernel's table is read
        too (tens of milliseconds): a second server that joined the port with SO_REUSEPORT is seen only there.
        """
        found = []
        for plan, process in self._ledger.locals():
            problem = self._problem(plan, process, thorough=thorough)
            if problem is not None and (plan.name, problem[0]) not in self._reported:
                self._reported.add((plan.name, problem[0]))
                found.append(_finding(problem[0], plan.name, problem[1], process))
        return found

    def _problem(self, plan: ProcessPlan, process: LocalProcess, *, thorough: bool) -> tuple[str, str] | None:
        if (code := process.exit_code()) is not None:
            return "process.died", f"{plan.name} (pid {process.pid}) ended with exit code {code}"
        dead = [identity for identity in self._engines.get(plan.name, ()) if not identity.alive()]
        if dead:
            return "process.died", f"{plan.name}: its engine process (pid {dead[0].pid}) ended"
        if not thorough and any(self._holds(plan.name, path) for path in self._holders.get(plan.name, ())):
            return None
        sockets = ports.listening_sockets(plan.address)
        if not sockets:
            return "process.died", f"{plan.name} (pid {process.pid}) no longer listens on port {plan.address.port}"
        if sockets != self._sockets.get(plan.name, sockets):
            return "process.changed", f"{plan.name}: port {plan.address.port} is now served through another socket"
        return None

    def _holds(self, name: str, descriptor: Path) -> bool:
        """True while a descriptor of ours still is the listening socket."""
        try:
            return str(descriptor.readlink()) in {f"socket:[{inode}]" for inode in self._sockets[name]}
        except OSError:
            return False


def _finding(rule_id: str, subject: str, detail: str, process: LocalProcess) -> Finding:
    data = {"pid": process.pid, "log_tail": process.log_tail()}
    return Finding(rule=rule_id, severity=rule(rule_id).severity, subject=subject, detail=detail, data=data)
