"""Findings with the rulebook's words, and every excluded or superseded block with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from harness.model.findings import Finding, Severity
from harness.model.rulebook import RULES
from harness.model.stored import ExcludedBlock, StoredRun
from harness.report.provenance import flatten

SUBJECTS = 12
"""Subjects listed per rule; the rest is counted and stands in audit.json."""

_RANK: dict[Severity, int] = {"void": 0, "incomplete": 1, "warning": 2, "info": 3}
_KNOWN = frozenset({"rule", "key", "detail", "counts", "exit_code", "at", "fix"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """All findings of one rule: what it means, what to do next, and what it was found on."""

    rule: str
    severity: Severity
    title: str
    meaning: str
    next_step: str
    subjects: tuple[tuple[str, str], ...]
    """(subject, detail), the first `SUBJECTS`."""
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedBlock:
    """One block that is not part of the result, and why."""

    kind: str
    position: int
    arm: str
    path: str
    rule: str
    title: str
    meaning: str
    next_step: str
    key: str
    detail: str
    counts: tuple[tuple[str, str], ...]
    exit_code: str
    at: str
    fix: str
    more: tuple[tuple[str, str], ...]


def finding_groups(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Findings by rule, the gravest first."""
    grouped: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in findings:
        grouped.setdefault((finding.severity, finding.rule), []).append(finding)
    return tuple(_group(*found) for found in sorted(grouped.items(), key=lambda item: (_RANK[item[0][0]], item[0][1])))


def archived(run: StoredRun) -> tuple[ArchivedBlock, ...]:
    """Excluded, then superseded blocks, as their reason.json says; what is not known is left empty."""
    kinds = (("excluded", run.excluded), ("superseded", run.superseded))
    return tuple(_archived(kind, block) for kind, blocks in kinds for block in blocks)


def _group(ident: tuple[Severity, str], findings: list[Finding]) -> FindingGroup:
    severity, rule_id = ident
    rule = RULES.get(rule_id)
    return FindingGroup(
        rule=rule_id,
        severity=severity,
        title=_sentence_case(rule.title) if rule else rule_id,
        meaning=rule.meaning if rule else "",
        next_step=rule.next_step if rule else "",
        subjects=tuple((_subject(finding), finding.detail) for finding in findings[:SUBJECTS]),
        total=len(findings),
    )


def _sentence_case(words: str) -> str:
    return words[:1].upper() + words[1:]


def _subject(finding: Finding) -> str:
    return finding.subject if finding.block is None else f"block {finding.block}: {finding.subject}"


def _archived(kind: str, block: ExcludedBlock) -> ArchivedBlock:
    reason = block.reason
    rule_id = _word(reason.get("rule"))
    rule = RULES.get(rule_id)
    return ArchivedBlock(
        kind=kind,
        position=block.position,
        arm=block.arm,
        path=f"{kind}/{PurePath(block.path).name}",
        rule=rule_id,
        title=rule.title if rule else rule_id or kind,
        meaning=rule.meaning if rule else "",
        next_step=rule.next_step if rule else "",
        key=_word(reason.get("key")),
        detail=_word(reason.get("detail")),
        counts=tuple(flatten(reason.get("counts"), "")),
        exit_code=_word(reason.get("exit_code")),
        at=_word(reason.get("at")),
        fix=_word(reason.get("fix")),
        more=tuple(flatten({key: value for key, value in reason.items() if key not in _KNOWN})),
    )


def _word(value: Any) -> str:
    return "" if value is None else str(value)
