"""Findings and verdicts: how the project says that something does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["void", "incomplete", "warning", "info"]
"""void: the block or screening cannot be used. incomplete: units leave the estimate. warning/info: shown only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a rule found. `rule` is an id of `harness.model.rulebook`, `subject` what it is about (a key, a block, a file)."""

    rule: str
    severity: Severity
    subject: str
    detail: str
    block: int | None = None
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedUnit:
    """A matched unit that left the estimate, with its partners in every other arm of the pair."""

    pair: int
    unit: str
    """Name of the unit; `*` where all units of the pair left."""
    rule: str
    """Why: a rule of `harness.model.rulebook`."""
    arm: str
    """The arm (as played) whose row or block caused it."""
    block: int
    key: str | None
    """The first row that caused it; None where the whole block did."""
    rows: int
    """Rows that left, in all arms together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The last word on a screening (or loose pair). Only `valid` may show timings without a stamp across them."""

    status: Literal["valid", "incomplete", "void"]
    findings: tuple[Finding, ...]
    rows: int
    paired: int
    """Rows that stand in an ON/OFF pair used by the estimate."""
    excluded: int
    """rows = paired + excluded, always."""
    excluded_units: tuple[ExcludedUnit, ...] = ()
    """Units that left the estimate, each once."""
    failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Arm (as played) → rule → rows that failed or were wrong, before their partners left with them."""
