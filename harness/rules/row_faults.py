"""What takes a single row, and so its unit and the partner unit, out of the estimate (experiment.md §7, first line)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.model.findings import Finding
from harness.model.observation import Failed
from harness.rules.facts import finding

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.planned import PlannedRequest
    from harness.rules.answers import Judgement

_BY_VERDICT = {
    "wrong": "row.wrong",
    "unparsable": "row.unparsable",
    "drift": "row.drift",
    "transfer_suspect": "answer.transfer_suspect",
    "foreign": "answer.foreign",
    "forced_wrong_length": "row.forced_length",
}
_SHOWN = 120
"""Characters of an answer that a finding quotes."""


def row_findings(
    request: PlannedRequest,
    seen: Observation,
    judgement: Judgement | None,
    *,
    limited: str | None = None,
    block: int | None = None,
) -> list[Finding]:
    """Findings about one row by itself.

    `judgement` is None where the request failed; `limited` says in words which threshold of the client the row passed.
    """
    out = [*_failed(request, seen, block), *_answer(request, seen, judgement, block)]
    if seen.ok and seen.stamps.first_content_ns is None:
        out.append(finding("row.no_content", request.key, f"{request.key}: completed without content", block=block))
    if seen.sim_missed:
        words = f"{request.key}: the simulator missed {seen.sim_missed} deadline(s)"
        out.append(finding("row.sim_missed", request.key, words, block=block, late_ns=seen.sim_max_late_ns))
    if limited is not None:
        words = f"{request.key}: limited by the client ({limited})"
        out.append(finding("row.client_limited", request.key, words, block=block, threshold=limited))
    return out


def _failed(request: PlannedRequest, seen: Observation, block: int | None) -> list[Finding]:
    if not isinstance(seen.outcome, Failed):
        return []
    words = f"{request.key} on {request.replica}: {seen.outcome.kind}: {seen.outcome.detail}"
    return [finding("row.failed", request.key, words, block=block, kind=str(seen.outcome.kind))]


def _answer(
    request: PlannedRequest, seen: Observation, judgement: Judgement | None, block: int | None
) -> list[Finding]:
    if judgement is None or judgement.verdict not in _BY_VERDICT:
        return []
    said = seen.content[:_SHOWN]
    if judgement.verdict == "forced_wrong_length":
        said = f"{seen.usage.completion_tokens if seen.usage else None} tokens, {request.forced_tokens} forced"
    strangers = f" (planted elsewhere: {', '.join(map(str, judgement.foreign))})" if judgement.foreign else ""
    words = f"{request.key} on {request.replica}: {judgement.verdict}: {said!r}{strangers}"
    return [finding(_BY_VERDICT[judgement.verdict], request.key, words, block=block)]
