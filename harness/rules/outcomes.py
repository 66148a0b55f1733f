"""What each kind of event costs: the table of experiment.md §7 as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harness.model.errors import ExitCode
from harness.model.findings import Finding
from harness.model.rulebook import rule

Leaves = Literal["nothing", "unit and partner", "all", "half-done pair", "nothing measured"]
Happening = Literal["leak", "void", "row", "interrupted", "not_started", "declaration", "locked", "deadline", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One line of the table: what leaves the estimate, what becomes of block and run, the exit code."""

    leaves: Leaves
    block: Literal["stays", "void, archived", "superseded", "none"]
    run: Literal["goes on", "stops", "stops at once"]
    exit_code: ExitCode
    resumable: bool


TABLE: dict[Happening, Outcome] = {
    "note": Outcome(leaves="nothing", block="stays", run="goes on", exit_code=ExitCode.OK, resumable=False),
    "row": Outcome(
        leaves="unit and partner", block="stays", run="goes on", exit_code=ExitCode.FINDINGS, resumable=False
    ),
    "leak": Outcome(
        leaves="all", block="void, archived", run="stops at once", exit_code=ExitCode.LEAK, resumable=False
    ),
    "void": Outcome(leaves="all", block="void, archived", run="stops", exit_code=ExitCode.VOID, resumable=False),
    "interrupted": Outcome(
        leaves="half-done pair", block="superseded", run="stops", exit_code=ExitCode.INTERRUPTED, resumable=True
    ),
    "not_started": Outcome(
        leaves="nothing measured", block="none", run="stops", exit_code=ExitCode.NOT_STARTED, resumable=True
    ),
    "declaration": Outcome(
        leaves="nothing measured", block="none", run="stops", exit_code=ExitCode.DECLARATION, resumable=False
    ),
    "locked": Outcome(leaves="nothing measured", block="none", run="stops", exit_code=ExitCode.LOCKED, resumable=True),
    "deadline": Outcome(
        leaves="half-done pair", block="superseded", run="stops", exit_code=ExitCode.DEADLINE, resumable=True
    ),
}


def happening(rule_id: str) -> Happening:
    """Which line of the table a rule that finds something *while measuring* belongs to."""
    known = rule(rule_id)
    if known.exit_code is ExitCode.LEAK:
        return "leak"
    if known.exit_code is ExitCode.VOID:
        return "void"
    return "note" if known.exit_code is ExitCode.OK else "row"


def outcome(rule_id: str) -> Outcome:
    """What it costs when that rule finds something while measuring."""
    return TABLE[happening(rule_id)]


def decisive(findings: Iterable[Finding]) -> Finding | None:
    """The finding that stops the run: the first leak, else the first that voids; None where the run goes on."""
    voiding = None
    for found in findings:
        kind = happening(found.rule)
        if kind == "leak":
            return found
        if kind == "void" and voiding is None:
            voiding = found
    return voiding


def excluding(findings: Iterable[Finding]) -> str | None:
    """The first rule that takes the row's unit out of the estimate; None where it stays."""
    return next((found.rule for found in findings if happening(found.rule) == "row"), None)
