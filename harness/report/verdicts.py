"""How a verdict is put into words: the same in the page and in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from harness.model.findings import Verdict
from harness.report.numbers import plural

WORDS: Mapping[str, str] = {"valid": "Valid", "incomplete": "Incomplete", "void": "Void"}


def verdict_sentence(verdict: Verdict) -> str:
    """Counts and findings, such as `768 rows: 768 in pairs that count, 0 excluded. No findings.`."""
    counts = f"{plural(verdict.rows, 'row')}: {verdict.paired:,} in pairs that count, {verdict.excluded:,} excluded."
    severities = Counter(finding.severity for finding in verdict.findings)
    if not severities:
        return f"{counts} No findings."
    named = [
        f"{severities[severity]:,} {severity}"
        for severity in ("void", "incomplete", "warning", "info")
        if severities[severity]
    ]
    return f"{counts} {plural(len(verdict.findings), 'finding')}: {', '.join(named)}."


def stamp_sentence(verdict: Verdict) -> str:
    """What a reader may do with the numbers of a verdict that is not valid."""
    if verdict.status == "void":
        return (
            "A rule voided this screening. The numbers below are shown for diagnosis and are no evidence for anything."
        )
    if verdict.status == "incomplete":
        return "Units left the estimate, by name and with their partners. The numbers below rest on what is left."
    return ""
