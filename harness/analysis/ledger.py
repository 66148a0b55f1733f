"""The audit's list of findings: severities from the rulebook, and a bound on how many of one rule are spelled out."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model.findings import Finding, Severity
from harness.model.rulebook import rule

SPELLED_OUT = 100
"""Findings of one rule that are listed one by one; further ones are counted in one closing line."""


class Ledger:
    """Collects findings. Void findings also mark their block: its pair leaves the estimate."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._count: dict[str, int] = {}
        self._hidden_blocks: dict[str, set[int]] = {}
        self.void_blocks: dict[int, Finding] = {}
        """Position of each block with a void finding → the first of them."""

    def add(
        self,
        rule_id: str,
        subject: str,
        detail: str,
        *,
        block: int | None = None,
        severity: Severity | None = None,
        **data: object,
    ) -> None:
        """Record one finding; `severity` only where it differs from the rulebook's, which the detail must explain."""
        weight = severity or rule(rule_id).severity
        self.take(Finding(rule=rule_id, severity=weight, subject=subject, detail=detail, block=block, data=data))

    def take(self, finding: Finding) -> None:
        """Record a finding that another layer made."""
        seen = self._count.get(finding.rule, 0)
        self._count[finding.rule] = seen + 1
        if finding.severity == "void" and finding.block is not None:
            self.void_blocks.setdefault(finding.block, finding)
        if seen < SPELLED_OUT:
            self._found.append(finding)
        elif finding.block is not None:
            self._hidden_blocks.setdefault(finding.rule, set()).add(finding.block)

    def has(self, rule_id: str) -> bool:
        """True where some finding of that rule was recorded."""
        return rule_id in self._count

    def extend(self, findings: Iterable[Finding]) -> None:
        """Record several."""
        for finding in findings:
            self.take(finding)

    def findings(self) -> tuple[Finding, ...]:
        """All findings, the worst first, in the order found; a rule with too many ends in a line with their number."""
        rest = []
        for rule_id, count in self._count.items():
            if count > SPELLED_OUT:
                like = next(f for f in self._found if f.rule == rule_id)
                blocks = len(self._hidden_blocks.get(rule_id, ()))
                detail = f"{count - SPELLED_OUT:,} more findings of this rule, in {blocks:,} blocks"
                rest.append(
                    Finding(rule=rule_id, severity=like.severity, subject="…", detail=detail, data={"count": count})
                )
        order: tuple[Severity, ...] = ("void", "incomplete", "warning", "info")
        return tuple(sorted([*self._found, *rest], key=lambda f: order.index(f.severity)))
