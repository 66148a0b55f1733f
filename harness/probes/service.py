"""Layer 5, service regression: real requests against running replicas of the ON arm, one at a time.

Order: isolation canary → warm-ups → the planned set. Counters are read around every request. A canary that is warm
ends the layer before anything else is sent: behind a cache that ignores the salt no request is cold.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from harness.model.counting import Counter, Expectation, WindowCounters
from harness.model.findings import Finding
from harness.model.planned import PlannedRequest, Role
from harness.probes.results import LayerResult
from harness.probes.service_bodies import Bodies
from harness.probes.service_causes import SaltControl, cause_of, needs_control
from harness.probes.service_plan import FRESH, SIMULATED_SCALE, ServicePlan
from harness.probes.service_result import Played, result_of
from harness.probes.service_rows import Row, row_of
from harness.probes.system import Message, OnStep, Snapshots, System, ignore_step
from harness.rules.answers import Judgement, judge, judge_length
from harness.rules.check import check_window
from harness.rules.expect import expectation, new_chunks, total_range
from harness.rules.facts import RequestWindow

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.payload import Payload
    from harness.model.screening import Arm, Screening

CANARIES = 3
MOST_CONTROLS = 24
"""Salt controls sent at most; a model that is wrong everywhere would double the set otherwise."""
FAILED_IN_A_ROW = 3
"""After so many failed requests one after another the replica is taken for dead."""


async def run(
    system: System, screening: Screening, arm: Arm, *, plan: ServicePlan, bodies: Bodies, on_step: OnStep = ignore_step
) -> tuple[LayerResult, tuple[Row, ...]]:
    """The layer's result and every request it rests on."""
    regression = Regression(
        system=system, screening=screening, arm=arm, plan=plan, bodies=bodies, before=await system.snapshot()
    )
    started = time.monotonic()
    played = await regression.play(on_step)
    return result_of(played, plan, screening, reach=arm.reach, seconds=time.monotonic() - started), played.rows


@dataclass(slots=True, kw_only=True)
class Regression:
    """One run of the set on one live system."""

    system: System
    screening: Screening
    arm: Arm
    plan: ServicePlan
    bodies: Bodies
    before: Snapshots
    rows: list[Row] = field(default_factory=list)
    health: list[Finding] = field(default_factory=list)
    transferred: set[tuple[str, str]] = field(default_factory=set)
    """(replica, namespace) pairs whose local cache holds state that came from the shared tier."""
    controls: dict[str, SaltControl] = field(default_factory=dict)
    """Text (payload id without its salt's suffix) → its salt control; one a text is enough."""
    store_counts: bool = True
    """False once the pool did not store what it should: waiting for it again would only cost time."""

    async def play(self, on_step: OnStep) -> Played:
        """Canary, warm-ups, set; stops early at a warm canary or a dead replica."""
        total = CANARIES + len(self.plan.warmups) + len(self.plan.requests)
        for number in range(CANARIES):
            on_step("isolation canary", len(self.rows), total)
            await self._canary(number)
        if any(row.reused for row in self.rows):
            return self._played("isolation")
        sent = CANARIES
        for part, requests in (("warmup", self.plan.warmups), ("plan", self.plan.requests)):
            for request in requests:
                on_step(request.key, sent, total)
                await self._planned(part, request)
                sent += 1
                if self._dead():
                    return self._played("dead")
        return self._played(None)

    def _played(self, stopped: str | None) -> Played:
        self.health.extend(self.system.health_findings())
        return Played(
            rows=tuple(self.rows), health=tuple(self.health), stopped=stopped, controls=len(self.controls),
            pools=self.system.pools, nonce=self.bodies.nonce,
        )  # fmt: skip

    def _dead(self) -> bool:
        last = self.rows[-FAILED_IN_A_ROW:]
        if any(found.rule == "process.died" for found in last[-1].findings):
            return True
        return len(last) == FAILED_IN_A_ROW and not any(row.ok for row in last)

    async def _canary(self, number: int) -> None:
        names = [replica.name for replica in self.screening.engine.replicas]
        payload, body = self.bodies.control(self.plan.canary, number)
        replica = names[min(number // 2, len(names) - 1)]
        request = self._bare(f"canary/{number + 1}", "cold", replica, payload, after=())
        await self._send("canary", request, payload, body)

    async def _planned(self, part: str, request: PlannedRequest) -> None:
        payload, body = self.bodies.of(request.payload_id)
        row, judgement = await self._send(part, request, payload, body)
        if judgement is None:
            return
        control = await self._control(request) if needs_control(judgement, reused=row.reused) else None
        cause = cause_of(judgement, reused=row.reused, transferred=row.transferred, control=control)
        if cause is not None:
            self.rows[self.rows.index(row)] = replace(row, cause=cause, control=_words(control))

    async def _control(self, planned: PlannedRequest) -> SaltControl | None:
        """The same tokens under a fresh salt, cold and then reused locally, at the same replica; known ones again."""
        text = planned.payload_id.removesuffix(FRESH)
        if text in self.controls or len(self.controls) >= MOST_CONTROLS:
            return self.controls.get(text)
        payload, body = self.bodies.control(planned.payload_id, CANARIES + len(self.controls))
        cold, cold_text = await self._control_half(planned, payload, body, "cold")
        warm, warm_text = await self._control_half(planned, payload, body, "warm")
        self.controls[text] = SaltControl(cold=cold, warm=warm, cold_text=cold_text, warm_text=warm_text)
        return self.controls[text]

    async def _control_half(
        self, planned: PlannedRequest, payload: Payload, body: bytes, half: Literal["cold", "warm"]
    ) -> tuple[Judgement | None, str]:
        role: Role = "cold" if half == "cold" else "local"
        after = () if half == "cold" else (payload.payload_id,)
        request = self._bare(f"{planned.key}/control-{half}", role, planned.replica, payload, after=after)
        # The check that applies is that of the text, which the planned request carries.
        request = replace(request, check=planned.check, forced_tokens=planned.forced_tokens)
        row, judgement = await self._send("control", request, payload, body)
        return judgement, row.answer

    def _bare(self, key: str, role: Role, replica: str, payload: Payload, *, after: tuple[str, ...]) -> PlannedRequest:
        """A request outside the plan, made like one of it so that the same rules can judge it."""
        model = (self.plan.requests or self.plan.warmups)[0]
        return replace(
            model,
            key=key,
            unit=key.rsplit("/", 1)[0],
            step=key.rsplit("/", 1)[1],
            role=role,
            replica=replica,
            payload_id=payload.payload_id,
            after_same_replica=after,
            after_any_replica=after,
        )

    async def _send(
        self, part: str, request: PlannedRequest, payload: Payload, body: bytes
    ) -> tuple[Row, Judgement | None]:
        before = self.before
        seen = await self.system.send(self._message(request, payload, body))
        unrest = await self._rest(request, payload, seen, before)
        self.before = await self.system.snapshot()
        counters = self.system.difference(before, self.before)
        expected = expectation(request, payload=payload, engine=self.screening.engine, reach=self.arm.reach)
        found = (*check_window(self._window(request, payload, seen, counters, expected)), *unrest)
        judgement = self._judge(request, payload, seen)
        row = row_of(
            part, request, payload, seen, counters,
            expected=expected, pools=self.system.pools, transferred=self._lineage(request, payload, counters),
            findings=found, judgement=judgement,
        )  # fmt: skip
        self.rows.append(row)
        return row, judgement

    def _message(self, request: PlannedRequest, payload: Payload, body: bytes) -> Message:
        simulated = self.screening.engine.kind == "sim"
        return Message(
            key=request.key,
            replica=request.replica,
            body=body,
            sha256=payload.sha256,
            request_id=f"validate-{self.bodies.nonce}-{len(self.rows):04d}",
            time_scale=SIMULATED_SCALE if simulated else 1.0,
            timeout_s=self.screening.request.timeout_s,
        )

    async def _rest(
        self, request: PlannedRequest, payload: Payload, seen: Observation, before: Snapshots
    ) -> Sequence[Finding]:
        if not seen.ok or seen.usage is None:
            sick = self.system.health_findings()
            return sick or await self.system.rest(before, {}, 0)
        chunks = self._stored_chunks(request, payload, seen.usage.cached_tokens or 0)
        found = await self.system.rest(before, {request.replica: seen.usage.prompt_tokens}, chunks)
        self.store_counts = self.store_counts and not any(one.rule == "pool.drain_timeout" for one in found)
        return found

    def _stored_chunks(self, request: PlannedRequest, payload: Payload, cached: int) -> int:
        """Chunks the pool must write before the next request; 0 where that is not known."""
        engine, reach = self.screening.engine, self.arm.reach
        most = total_range(expectation(request, payload=payload, engine=engine, reach=reach))[1]
        if not self.system.pools or not self.store_counts or cached > most:
            return 0  # more was found than can be right: it need not be stored again
        return new_chunks(request, payload=payload, engine=engine, reach=reach)

    def _window(
        self,
        request: PlannedRequest,
        payload: Payload,
        seen: Observation,
        counters: WindowCounters,
        expected: Expectation,
    ) -> RequestWindow:
        return RequestWindow(
            request=request,
            payload=payload,
            observation=seen,
            counters=counters,
            expectation=expected,
            arm=self.arm,
            engine=self.screening.engine,
            replicas=tuple(replica.name for replica in self.screening.engine.replicas),
            pools=self.system.pools,
        )

    def _judge(self, request: PlannedRequest, payload: Payload, seen: Observation) -> Judgement | None:
        if not seen.ok:
            return None
        if request.check == "forced" and request.forced_tokens is not None and seen.usage is not None:
            return judge_length(seen.usage.completion_tokens, request.forced_tokens)
        if request.check == "exact" and payload.expected is not None:
            own = [value.value for value in payload.values]
            return judge(
                seen.content, expected=payload.expected, foreign=self.bodies.planted, own=own, form=payload.answer_form
            )
        return Judgement(verdict="unchecked", values=None)

    def _lineage(self, request: PlannedRequest, payload: Payload, counters: WindowCounters) -> bool:
        """Whether what this replica holds of the namespace came, wholly or in part, from the shared tier."""
        here = (request.replica, payload.namespace)
        if counters.value(request.replica, Counter.EXTERNAL_HITS):
            self.transferred.add(here)
        return here in self.transferred


def _words(control: SaltControl | None) -> str | None:
    if control is None:
        return None
    cold = "failed" if control.cold is None else f"{control.cold.verdict} {control.cold_text!r}"
    warm = "failed" if control.warm is None else f"{control.warm.verdict} {control.warm_text!r}"
    return f"same tokens under a fresh salt: cold {cold}, reused locally without transfer {warm}"
