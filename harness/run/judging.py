"""Judges answers while a block runs: remembers local-warm controls, so that a wrong transfer can be told from drift."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.model.counting import Counter, WindowCounters
from harness.model.planned import PlannedRequest
from harness.rules.answers import Judgement, explain_wrong, judge, judge_length

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.payload import Payload


class Judge:
    """One per block. Values planted anywhere in the screening are known to it."""

    def __init__(self, payloads: Iterable[Payload]) -> None:
        self._planted = frozenset(planted.value for payload in payloads for planted in payload.values)
        self._controls: dict[str, Judgement] = {}

    def judge(
        self, request: PlannedRequest, payload: Payload, seen: Observation, counters: WindowCounters | None
    ) -> Judgement | None:
        """The verdict on one answer; None where the request failed."""
        if not seen.ok:
            return None
        first = self._first_look(request, payload, seen)
        local, external = _hits(request, counters)
        if external:
            verdict = explain_wrong(first, self._controls.get(payload.payload_id))
            return replace(first, verdict=verdict)
        if local and external is not None:
            self._controls.setdefault(payload.payload_id, first)
        return first

    def _first_look(self, request: PlannedRequest, payload: Payload, seen: Observation) -> Judgement:
        if request.check == "forced" and request.forced_tokens is not None and seen.usage is not None:
            return judge_length(seen.usage.completion_tokens, request.forced_tokens)
        if request.check == "exact" and payload.expected is not None:
            own = [planted.value for planted in payload.values]
            return judge(
                seen.content, expected=payload.expected, foreign=self._planted, own=own, form=payload.answer_form
            )
        return Judgement(verdict="unchecked", values=None)


def _hits(request: PlannedRequest, counters: WindowCounters | None) -> tuple[int | None, int | None]:
    """(local, external) hits; an external series that does not exist beside known local hits counts as none."""
    if counters is None:
        return None, None
    local = counters.value(request.replica, Counter.LOCAL_HITS)
    external = counters.value(request.replica, Counter.EXTERNAL_HITS)
    return local, 0 if external is None and local is not None else external
