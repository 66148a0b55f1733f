"""One concurrency window: all its sessions at once, counters read once around the whole of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.client.limits import client_limited
from harness.model.counting import Counter
from harness.model.findings import Finding
from harness.rules.row_faults import row_findings
from harness.rules.windows import ConcurrencyWindow, WindowMember, check_concurrency
from harness.run.rows import Measured, counter_rows, findings_of

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.planned import PlannedRequest
    from harness.run.ports import Decode, Exchange, Snapshots
    from harness.run.windows import Windows


_Ready = tuple["PlannedRequest", "Exchange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """One request of a window after its stream ended."""

    request: PlannedRequest
    observation: Observation
    recorded_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """A request's share of the harness's time around its window."""

    overhead_ns: int
    barrier_ns: int


async def measure_window(windows: Windows, unit: Sequence[PlannedRequest]) -> None:
    """Run one window; raises LeakError or VoidBlock like a single-request window does."""
    key, clock = str(unit[0].window), windows.setting.clock
    windows.announce(unit[0])
    before = windows.before
    answered = await _all_sessions(windows, unit)
    ended_ns = clock.now_ns()
    barrier_ns, unrest = await _rest_after(windows, before, answered)
    windows.before = await windows.live.snapshot()
    counters = windows.live.difference(before, windows.before)
    window = ConcurrencyWindow(
        key=key,
        members=tuple(_member(windows, answered[request.key]) for request in unit),
        counters=counters,
        arm=windows.setting.arm(windows.block),
        engine=windows.setting.screening.engine,
        replicas=windows.setting.replicas,
        pools=windows.live.pools,
        block=windows.block.position,
    )
    found = [*check_concurrency(window), *unrest, *(() if window.ok else windows.live.health_findings())]
    share = _Share(
        overhead_ns=(clock.now_ns() - ended_ns - barrier_ns) // len(unit), barrier_ns=barrier_ns // len(unit)
    )
    for member in window.members:
        found.extend(_record(windows, member, answered[member.request.key].recorded_ns, found, share))
    if window.ok:
        least = sum(member.expectation.external_min for member in window.members)
        windows.ledger.exposure.append((least, window.total(Counter.EXTERNAL_HITS)))
    windows.writer.add("counters", counter_rows(windows.identity, key, counters, before, windows.before))
    windows.stop(found)


async def _rest_after(
    windows: Windows, before: Snapshots, answered: Mapping[str, _Answered]
) -> tuple[int, list[Finding]]:
    """Barriers; where one request failed nobody knows what was counted or stored, so only quiet is waited for."""
    sent: dict[str, int] = {}
    for entry in answered.values():
        usage = entry.observation.usage
        if not entry.observation.ok or usage is None:
            return await windows.barriers(before, {}, 0)
        sent[entry.request.replica] = sent.get(entry.request.replica, 0) + usage.prompt_tokens
    return await windows.barriers(before, sent, sum(windows.new_chunks(entry.request) for entry in answered.values()))


async def _all_sessions(windows: Windows, unit: Sequence[PlannedRequest]) -> dict[str, _Answered]:
    """All is prepared before the first session begins and decoded after the last has ended: neither disturbs it."""
    sessions: dict[int | None, list[_Ready]] = {}
    for request in unit:
        outgoing = windows.outgoing(request, windows.setting.fixtures.payload(request.payload_id))
        sessions.setdefault(request.session, []).append((request, windows.live.prepare(outgoing)))
    results = await asyncio.gather(*(_session(windows, turns) for turns in sessions.values()))
    return {
        request.key: _Answered(request=request, observation=decode(), recorded_ns=recorded_ns)
        for result in results
        for request, decode, recorded_ns in result
    }


async def _session(windows: Windows, turns: Sequence[_Ready]) -> list[tuple[PlannedRequest, Decode, int]]:
    """The next turn goes out when the last one ended; nothing but a stamp lies between them."""
    results = []
    for request, exchange in turns:
        decode = await exchange()
        results.append((request, decode, windows.setting.clock.now_ns()))
    return results


def _record(
    windows: Windows,
    member: WindowMember,
    recorded_ns: int,
    found: Sequence[Finding],
    share: _Share,
) -> list[Finding]:
    """Record one row with everything found about it; returns what was found about its answer."""
    request, seen = member.request, member.observation
    judgement = windows.judge.judge(request, member.payload, seen, None)
    limited = client_limited(seen)
    own = row_findings(request, seen, judgement, limited=limited, block=windows.block.position)
    windows.record(
        Measured(
            request=request,
            payload=member.payload,
            observation=seen,
            expectation=member.expectation,
            verdict=judgement.verdict if judgement else None,
            recorded_ns=recorded_ns,
            counters=None,
            findings=(*findings_of(found, request.key), *own),
            limited=limited,
            overhead_ns=share.overhead_ns,
            barrier_ns=share.barrier_ns,
        )
    )
    return own


def _member(windows: Windows, answered: _Answered) -> WindowMember:
    payload = windows.setting.fixtures.payload(answered.request.payload_id)
    return WindowMember(
        request=answered.request,
        payload=payload,
        observation=answered.observation,
        expectation=windows.expect(answered.request, payload),
    )
