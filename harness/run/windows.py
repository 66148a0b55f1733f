"""Measured windows of one block: every request alone on the system (`harness.run.concurrency` has those that are not).

Order of a single-request window: (counters known from the end of the window before) → send → settle → drain → snapshot
→ difference → rules → row. The snapshot that ends a window begins the next one, so that whatever happens between two
windows shows up in the next and nothing on the system goes uncounted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from harness.client.limits import client_limited
from harness.model.counting import Counter, Expectation, WindowCounters
from harness.model.findings import Finding
from harness.rules.check import check_window
from harness.rules.expect import expectation, new_chunks
from harness.rules.facts import RequestWindow
from harness.rules.row_faults import row_findings
from harness.run.concurrency import measure_window
from harness.run.context import Setting, stop_if_void
from harness.run.judging import Judge
from harness.run.ports import Live, Outgoing, Snapshots
from harness.run.rows import Identity, Measured, chunk_rows, counter_rows, hit_source, request_row

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.payload import Payload
    from harness.model.planned import PlannedBlock, PlannedRequest
    from harness.store.writer import BlockWriter


_LATE_S = 0.001
"""A gap that is late by less is as declared: timers resolve a millisecond."""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What accumulates over a block beside its rows."""

    findings: list[Finding] = field(default_factory=list)
    exposure: list[tuple[int, int | None]] = field(default_factory=list)
    """(expected external_min, external hits) of every single-request window."""
    late_gaps: list[tuple[str, float]] = field(default_factory=list)
    """(key of the turn that came late, seconds by which the drain outlasted the declared gap)."""
    overhead_ns: int = 0
    barrier_ns: int = 0
    done: dict[str, int] = field(default_factory=lambda: {"requests": 0, "warmups": 0})


@dataclass(slots=True, kw_only=True)
class Windows:
    """Measures the requests of one block on one live system."""

    setting: Setting
    block: PlannedBlock
    live: Live
    writer: BlockWriter
    identity: Identity
    judge: Judge
    before: Snapshots
    """Counters at the end of the last window."""
    ledger: Ledger = field(default_factory=Ledger)

    async def run_units(self, requests: Sequence[PlannedRequest]) -> None:
        """Every unit in order, flushed to disk after each; raises LeakError or VoidBlock where a rule says so."""
        for _, group in groupby(requests, key=lambda request: request.unit):
            unit = tuple(group)
            if unit[0].window is not None:
                await measure_window(self, unit)
            else:
                await self._sequence(unit)
            self.writer.flush()
            self.stop(self.live.health_findings())

    async def _sequence(self, unit: Sequence[PlannedRequest]) -> None:
        gap_s = self._gap_s(unit[0])
        recorded_ns = None
        for request in unit:
            if recorded_ns is not None and gap_s is not None:
                await self._wait_gap(request.key, recorded_ns, gap_s)
            recorded_ns = await self._single(request)

    async def _single(self, request: PlannedRequest) -> int:
        """One request alone on the system; returns when its answer had been recorded."""
        clock, payload = self.setting.clock, self.setting.fixtures.payload(request.payload_id)
        self.announce(request)
        before = self.before
        seen = await self.live.send(self.outgoing(request, payload))
        recorded_ns = clock.now_ns()
        sick = [] if seen.ok else self.live.health_findings()
        barrier_ns, unrest = (0, []) if sick else await self._rest_after(request, seen, before)
        self.before = await self.live.snapshot()
        counters = self.live.difference(before, self.before)
        judgement = self.judge.judge(request, payload, seen, counters)
        # Only a session's wall time ends with the row; decoding 2,048 events may take what it takes elsewhere.
        limited = client_limited(seen, recorded_ns=recorded_ns if request.role == "turn" else None)
        facts = self._facts(request, payload, seen, counters)
        found = (
            *sick,
            *check_window(facts),
            *unrest,
            *row_findings(request, seen, judgement, limited=limited, block=self.block.position),
        )
        self.record(
            Measured(
                request=request,
                payload=payload,
                observation=seen,
                expectation=facts.expectation,
                verdict=judgement.verdict if judgement else None,
                recorded_ns=recorded_ns,
                counters=counters,
                findings=found,
                limited=limited,
                overhead_ns=clock.now_ns() - recorded_ns - barrier_ns,
                barrier_ns=barrier_ns,
            )
        )
        self.writer.add("counters", counter_rows(self.identity, request.key, counters, before, self.before))
        if seen.ok:
            hits = counters.value(request.replica, Counter.EXTERNAL_HITS)
            self.ledger.exposure.append((facts.expectation.external_min, hits))
        self.stop(found)
        return recorded_ns

    async def _rest_after(
        self, request: PlannedRequest, seen: Observation, before: Snapshots
    ) -> tuple[int, list[Finding]]:
        if not seen.ok or seen.usage is None:  # nobody knows what was counted or stored
            return await self.barriers(before, {}, 0)
        sent = {request.replica: seen.usage.prompt_tokens}
        return await self.barriers(before, sent, self.new_chunks(request))

    async def barriers(self, before: Snapshots, sent: Mapping[str, int], chunks: int) -> tuple[int, list[Finding]]:
        """Counters caught up, nothing running, stores drained. Nanoseconds waited, and what did not come to rest."""
        started_ns = self.setting.clock.now_ns()
        found = [
            *await self.live.settle(before, sent),
            *await self.live.quiesce(),
            *await self.live.drain(before, chunks),
        ]
        waited_ns = self.setting.clock.now_ns() - started_ns
        self.ledger.barrier_ns += waited_ns
        return waited_ns, found

    def new_chunks(self, request: PlannedRequest) -> int:
        """Chunks that the cache service must write for this request; 0 where the arm has none."""
        payload = self.setting.fixtures.payload(request.payload_id)
        arm, engine = self.setting.arm(self.block), self.setting.screening.engine
        return new_chunks(request, payload=payload, engine=engine, reach=arm.reach) if self.live.pools else 0

    async def _wait_gap(self, key: str, recorded_ns: int, gap_s: float) -> None:
        clock = self.setting.clock
        left_s = gap_s - (clock.now_ns() - recorded_ns) / 1e9
        if left_s > 0:
            await clock.sleep(left_s)
        elif -left_s > _LATE_S:
            self.ledger.late_gaps.append((key, -left_s))

    def _gap_s(self, request: PlannedRequest) -> float | None:
        sessions = self.setting.screening.workloads.sessions
        return sessions.gap_s if request.workload == "sessions" and sessions is not None else None

    def outgoing(self, request: PlannedRequest, payload: Payload) -> Outgoing:
        """The stored bytes, addressed."""
        return Outgoing(
            key=request.key,
            replica=request.replica,
            body=self.setting.fixtures.body(request.payload_id),
            sha256=payload.sha256,
            request_id=f"{self.identity.run}-{self.block.position:02d}-{request.seq:05d}",
            time_scale=request.time_scale,
            timeout_s=self.setting.screening.request.timeout_s,
        )

    def expect(self, request: PlannedRequest, payload: Payload) -> Expectation:
        """The hits that this request must show in this arm."""
        arm, engine = self.setting.arm(self.block), self.setting.screening.engine
        return expectation(request, payload=payload, engine=engine, reach=arm.reach)

    def _facts(
        self, request: PlannedRequest, payload: Payload, seen: Observation, counters: WindowCounters
    ) -> RequestWindow:
        return RequestWindow(
            request=request,
            payload=payload,
            observation=seen,
            counters=counters,
            expectation=self.expect(request, payload),
            arm=self.setting.arm(self.block),
            engine=self.setting.screening.engine,
            replicas=self.setting.replicas,
            pools=self.live.pools,
            block=self.block.position,
        )

    def record(self, measured: Measured) -> None:
        """Build the row and its chunks, in memory; keep its findings; count it."""
        request, seen = measured.request, measured.observation
        stem = "warmups" if request.warmup else "requests"
        row = request_row(self.identity, measured)
        self.writer.add(stem, [row])
        self.writer.add("chunks", chunk_rows(self.identity, request, seen))
        self.ledger.done[stem] += 1
        self.ledger.overhead_ns += measured.overhead_ns or 0
        self.ledger.findings.extend(measured.findings)
        self.setting.pace.done += 1
        hits = hit_source(row["local_hits"], row["external_hits"])
        self.setting.pace.report(
            self.block, self._phase(request), request.key, unit=request.unit, hit_state=hits, ttft_ns=row["ttft_ns"]
        )

    def announce(self, request: PlannedRequest) -> None:
        """Say what is sent next."""
        self.setting.pace.report(
            self.block, self._phase(request), request.key, unit=request.unit, hit_state=request.role
        )

    @staticmethod
    def _phase(request: PlannedRequest) -> Literal["warm-up", "measure"]:
        return "warm-up" if request.warmup else "measure"

    def stop(self, findings: Sequence[Finding]) -> None:
        """Stop the block if one of them is decisive; findings that are no row's own are kept for the manifest."""
        known = {id(found) for found in self.ledger.findings}
        self.ledger.findings.extend(found for found in findings if id(found) not in known)
        stop_if_void(findings)
