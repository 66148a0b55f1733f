"""From both sides of one start of a tool to figures: errors of TTFT, CPU an event, the load that was sustained.

Error of TTFT = the tool's TTFT − (first content sent − request arrived), both of the latter by the emitter. It contains
what the tool does between its start stamp and the request's arrival (connecting, if it counts that, and sending), the
way through loopback, and how late the tool stamps. Stamp error = the tool's stamp of the first token − first content
sent; the start of the request plays no part in it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.peers.measuring import Outcome, Programme
from tests.bench.peers.tools import Record, messages_key

UNCERTAIN_NS = 200_000
"""A first write that took longer says too little about when the token left."""
LIMIT_NS = 5_000_000
KEPT_UP = 0.98
EMITTER_LATE_NS = 2_000_000
WARM = 10
"""Requests left out at the start of every tool: connections, imports, caches. With more streams, the first wave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """µs."""

    median: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """One phase of one start."""

    rate: float
    events_per_s: float
    """Content events the emitter sent a second while all streams were in this phase."""
    asked: int
    """Requests that the emitter answered in this phase, the warm ones left out."""
    compared: int
    uncertain: int
    missing: int
    """Requests for which the tool has no (successful) record."""
    client_limited: int
    ttft: Spread | None
    stamp: Spread | None
    kept_up: float | None
    """Time from request to last token by the emitter ÷ the same by the tool."""
    cpu_us_per_event: float | None
    cpu_share: float | None
    """Of one core."""
    emitter_late_p99_us: float | None

    @property
    def emitter_saturated(self) -> bool:
        return self.emitter_late_p99_us is None or self.emitter_late_p99_us * 1e3 > EMITTER_LATE_NS

    def why_behind(self, *, exact: bool, unmarked: bool) -> str | None:
        """In words; None where the tool kept up, if `exact` also stamped well, if `unmarked` by its own audit too."""
        if self.asked == 0 or self.ttft is None:
            return "it was far behind before"
        if self.missing:
            return f"{self.missing} of {self.asked} requests failed"
        if self.kept_up is not None and self.kept_up < KEPT_UP:
            return f"received {self.kept_up:.1%} of the rate"
        if exact and self.ttft.p99 * 1e3 > LIMIT_NS:
            return f"TTFT error p99 {self.ttft.p99 / 1e3:.1f} ms"
        if unmarked and self.client_limited > self.compared / 100:
            return f"{self.client_limited} of {self.compared} rows say that the client limited them"
        return None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """The highest load of the ladder that a tool kept up with. None = not even the lowest."""

    events_per_s: float | None
    ended_by: str
    at_least: bool
    """The ladder ended, or the emitter was saturated, before the tool was."""


def spread(values: Sequence[float]) -> Spread | None:
    """Of values in ns."""
    if not values:
        return None
    ordered = sorted(values)
    at = (len(ordered) // 2, min(len(ordered) - 1, len(ordered) * 99 // 100), -1)
    median, p99, maximum = (round(ordered[index] / 1e3, 1) for index in at)
    return Spread(median=median, p99=p99, maximum=maximum)


def paired(served: Sequence[dict[str, Any]], records: Sequence[Record]) -> Iterator[tuple[dict[str, Any], Record]]:
    """The emitter's record and the tool's for the same request; equal prompts pair in order of time."""
    waiting: dict[str, deque[Record]] = defaultdict(deque)
    for record in sorted(records, key=lambda one: one.start_ns or 0):
        waiting[record.key].append(record)
    for one in served:
        for key in filter(None, (one["request_id"], messages_key(one["body"]))):
            if waiting.get(key):
                yield one, waiting[key].popleft()
                break


def phase_figures(outcome: Outcome, programme: Programme) -> list[PhaseFigures]:
    """One for each phase."""
    pairs = {one["index"]: record for one, record in paired(outcome.report["served"], outcome.records)}
    return [_phase(outcome, programme, pairs, number) for number in range(len(programme.phases))]


def _phase(outcome: Outcome, programme: Programme, pairs: dict[int, Record], number: int) -> PhaseFigures:
    served = [one for one in outcome.report["served"] if one["phase"] == number and not one["short"]]
    begin = min((one["index"] for one in served), default=0)
    cold = programme.streams if programme.streams > 1 else (WARM if number == 0 else 0)
    warm = [one for one in served if one["index"] >= begin + cold and one["last_ns"]]
    compared = [(one, pairs[one["index"]]) for one in warm if one["index"] in pairs]
    certain = [(one, record) for one, record in compared if one["first_sent_ns"] - one["first_ns"] < UNCERTAIN_NS]
    whole = [(one, record) for one, record in compared if record.latency_ns]
    cpu = _cpu(outcome, number)
    emitted = sum(one["tokens"] for one in served)
    late = outcome.report["late_p99_ns"][number]
    return PhaseFigures(
        rate=programme.phases[number].rate,
        events_per_s=_events_per_s(outcome.report["served"], warm),
        asked=len(warm),
        compared=len(certain),
        uncertain=len(compared) - len(certain),
        missing=len(warm) - len(compared),
        client_limited=sum(record.client_limited for _, record in compared),
        ttft=spread([record.ttft_ns - _truth(one) for one, record in certain if record.ttft_ns is not None]),
        stamp=spread(
            [
                record.start_ns + record.ttft_ns - one["first_ns"]
                for one, record in certain
                if record.start_ns is not None and record.ttft_ns is not None
            ]
        ),
        kept_up=_ratio(
            sum(one["last_ns"] - one["arrival_ns"] for one, _ in whole),
            sum(record.latency_ns or 0 for _, record in whole),
        ),
        cpu_us_per_event=None if cpu is None else _ratio(cpu * 1e6, emitted),
        cpu_share=None if cpu is None else _ratio(cpu * 1e9, _span(outcome.report["served"], number)),
        emitter_late_p99_us=None if late is None else late / 1e3,
    )


def _truth(one: dict[str, Any]) -> int:
    return int(one["first_ns"] - one["arrival_ns"])


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _cpu(outcome: Outcome, number: int) -> float | None:
    """CPU seconds from the first request of this phase to that of the next, or to the end."""
    before, after = outcome.cpu_at.get(number), outcome.cpu_at.get(number + 1)
    return None if before is None or after is None else after - before


def _span(served: Sequence[dict[str, Any]], number: int) -> int:
    begin = min((one["arrival_ns"] for one in served if one["phase"] == number), default=0)
    after = [one["arrival_ns"] for one in served if one["phase"] == number + 1]
    return (min(after) if after else max((one["end_ns"] for one in served), default=0)) - begin


def _events_per_s(served: Sequence[dict[str, Any]], warm: Sequence[dict[str, Any]]) -> float:
    """Over the time from the arrival of the first to that of the last warm request; a stream's events lie evenly."""
    if len(warm) < 2:
        return 0.0
    begin, end = int(warm[0]["arrival_ns"]), int(warm[-1]["arrival_ns"])
    events: float = 0.0
    for one in served:
        span: int = one["last_ns"] - one["first_ns"]
        if span > 0:
            inside = min(end, one["last_ns"]) - max(begin, one["first_ns"])
            events += one["tokens"] * max(0, inside) / span
    return events * 1e9 / max(1, end - begin)


def sustained(phases: Sequence[PhaseFigures], top: float, *, exact: bool = False, unmarked: bool = False) -> Sustained:
    """The highest rung that was kept up with.

    `exact` asks for a TTFT p99 within 5 ms too, `unmarked` for at most 1 % of rows that say the client limited them.

    A rung that the emitter reached late counts where the tool kept up all the same (its rate is measured); where the
    tool did not, it may have been the emitter's bunching. `top` is the highest load of the ladder, events/s.
    """
    reasons = [phase.why_behind(exact=exact, unmarked=unmarked) for phase in phases]
    kept = [number for number, why in enumerate(reasons) if why is None]
    last = kept[-1] if kept else -1
    reached = max((phases[number].events_per_s for number in kept), default=None)
    if last == len(phases) - 1:
        return Sustained(events_per_s=reached, ended_by=f"the ladder ends at {top:,.0f}", at_least=True)
    late = phases[last + 1].emitter_saturated
    reason = (reasons[last + 1] or "") + (", emitter late too" if late else "")
    return Sustained(events_per_s=reached, ended_by=reason, at_least=late)
