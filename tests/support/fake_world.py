"""An engine, a cache service, fixtures and a clock without processes: token-exact, in memory, with faults on demand.

A prompt is a prefix of its namespace's endless token stream; a cache is one number per namespace: how far it reaches.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from harness.model.counting import Counter, Increase, Missing, Reset, Snapshot, WindowCounters
from harness.model.errors import EngineError
from harness.model.findings import Finding
from harness.model.observation import Completed, Failed, FailureKind, Observation, Stamps, StreamEvent, Usage
from harness.model.payload import Payload, PlantedValue
from harness.model.planned import Plan, PlannedPayload
from harness.model.screening import (
    Arm,
    ChainsSpec,
    ChecksSpec,
    ConcurrencySpec,
    EngineSpec,
    GenerationSpec,
    ReplicaSpec,
    RequestSpec,
    Screening,
    ServiceSpec,
    SessionsSpec,
    Size,
    WarmupSpec,
    Workloads,
)
from harness.run.ports import Capacity, Outgoing

BLOCK, CHUNK, ANSWER = 16, 64, 20
SIZE = Size(label="1k", tokens=1000)
OFF = Arm(name="off", reach="none")
ON = Arm(name="on", reach="all", services=("pool",))
NATIVE = Arm(name="native", reach="replica")
CHAINS = Workloads(chains=ChainsSpec(sizes=(SIZE,), chains=2), warmup=WarmupSpec(per_replica=1, tokens=200))
ALL_WORKLOADS = Workloads(
    chains=ChainsSpec(sizes=(SIZE, Size(label="2k", tokens=2000)), chains=2),
    sessions=SessionsSpec(sizes=(SIZE,), placements=("fixed", "alternating"), sessions=2, turns=3, turn_tokens=150),
    generation=GenerationSpec(sizes=(SIZE,), outputs=(16,)),
    concurrency=ConcurrencySpec(size=SIZE, windows=(4,), placements=("alternating",), turns=3, turn_tokens=150),
    warmup=WarmupSpec(per_replica=1, tokens=200),
)


def make_screening(
    *,
    workloads: Workloads = CHAINS,
    order: tuple[str, ...] = ("off", "on"),
    arms: tuple[Arm, ...] = (OFF, ON),
    deadline_s: float | None = None,
    answers: str = "exact",
) -> Screening:
    engine = EngineSpec(
        kind="sim",
        model="fake",
        tokenizer="none",
        replicas=(ReplicaSpec(name="A", url="http://a"), ReplicaSpec(name="B", url="http://b")),
        block_size=BLOCK,
        chunk_size=CHUNK,
    )
    return Screening(
        name="fake",
        description="a screening without processes",
        engine=engine,
        arms=arms,
        services=(ServiceSpec(name="pool", kind="sim-cache", url="http://pool"),),
        factor=("reach", "services"),
        order=order,
        baseline="off",
        seed=1,
        request=RequestSpec(),
        workloads=workloads,
        checks=ChecksSpec(answers=answers),
        digest=hashlib.sha256(repr((workloads, order)).encode()).hexdigest(),
        deadline_s=deadline_s,
    )


class FakeClock:
    def __init__(self) -> None:
        self.ns = 1_000_000_000
        self.slept: list[float] = []

    def now_ns(self) -> int:
        self.ns += 1_000
        return self.ns

    def utc(self) -> str:
        return "2026-11-30T12:00:00+00:00"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ns += int(seconds * 1e9)


class FakeFixtures:
    """Payloads whose counts are exact by construction."""

    def __init__(self, plan: Plan) -> None:
        self._planned = {payload.payload_id: payload for payload in plan.payloads}
        self._bodies = {key: self._body(planned) for key, planned in self._planned.items()}
        self._payloads = {key: self._make(planned) for key, planned in self._planned.items()}

    def payload(self, payload_id: str) -> Payload:
        return self._payloads[payload_id]

    def body(self, payload_id: str) -> bytes:
        return self._bodies[payload_id]

    def copy_to(self, folder: Path, payload_ids: Iterable[str]) -> None:
        folder.mkdir(exist_ok=True)
        for payload_id in payload_ids:
            (folder / self._payloads[payload_id].path).write_bytes(self._bodies[payload_id])

    def payloads_json(self, payload_ids: Iterable[str]) -> bytes:
        return orjson.dumps({payload_id: _fields(self._payloads[payload_id]) for payload_id in payload_ids})

    def change(self, payload_id: str, **values: object) -> None:
        self._payloads[payload_id] = replace(self._payloads[payload_id], **values)

    @staticmethod
    def tokens(planned: PlannedPayload) -> int:
        return planned.nominal_tokens + 3 + planned.turn * planned.turn_tokens

    def _body(self, planned: PlannedPayload) -> bytes:
        return orjson.dumps(
            {"id": planned.payload_id, "namespace": planned.namespace, "n": self.tokens(planned), "asks": planned.asks}
        )

    def _make(self, planned: PlannedPayload) -> Payload:
        n = self.tokens(planned)
        earlier = [
            other
            for other in self._planned.values()
            if other.namespace == planned.namespace and other.turn <= planned.turn
        ]
        values = planted(planned.namespace)
        expected = {f"v{i}": values[i] for i in planned.asks} or None
        body = self._bodies[planned.payload_id]
        return Payload(
            payload_id=planned.payload_id,
            namespace=planned.namespace,
            salt=planned.namespace[:32],
            sha256=hashlib.sha256(body).hexdigest(),
            nbytes=len(body),
            prompt_tokens=n,
            path=planned.payload_id.replace("/", "_") + ".json",
            values=tuple(PlantedValue(name=f"v{i}", value=v, token_position=i) for i, v in enumerate(values)),
            expected=expected,
            lcp={other.payload_id: min(n, self.tokens(other)) for other in earlier},
            lcp_with_answer={other.payload_id: min(n, self.tokens(other) + ANSWER) for other in earlier},
            largest_foreign_lcp=0,
        )


def planted(namespace: str) -> list[int]:
    digest = hashlib.sha256(namespace.encode()).digest()
    return [100_000 + int.from_bytes(digest[4 * i : 4 * i + 4], "big") % 900_000 for i in range(5)]


def _fields(payload: Payload) -> dict[str, object]:
    values = [{"name": v.name, "value": v.value, "token_position": v.token_position} for v in payload.values]
    return {name: getattr(payload, name) for name in payload.__slots__} | {"values": values}


@dataclass
class Faults:
    """What goes wrong. Keys are request keys, prefixed with nothing: a fault acts in the blocks of `arms`."""

    local: dict[str, int] = field(default_factory=dict)
    """key → tokens added to the local hits (negative: missing)."""
    external: dict[str, int] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    fail: dict[str, FailureKind] = field(default_factory=dict)
    usage_offset: dict[str, int] = field(default_factory=dict)
    """key → prompt tokens that the server counts beyond the plan."""
    stray_queries: dict[str, int] = field(default_factory=dict)
    """key → tokens that the other replica counts in this window."""
    reset: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    """Keys in whose window the replica's process dies."""
    pool_losses: dict[str, Counter] = field(default_factory=dict)
    arms: frozenset[str] = frozenset({"off", "on", "native"})
    salt_ignored_by_pool: bool = False
    salt_ignored_locally: bool = False
    not_loaded: bool = False
    no_transfer: bool = False
    hide: frozenset[Counter] = frozenset()
    num_blocks: Callable[[int], int] = lambda _start: 500
    start_error: int | None = None
    """Number of the start (1-based) that raises an EngineError."""
    on_send: Callable[[str, str], None] = lambda _arm, _key: None
    drain_s: float = 0.0


class FakeLive:
    """One started arm."""

    def __init__(self, stage: FakeStage, arm: Arm, start: int) -> None:
        self._stage, self._arm, self._faults = stage, arm, stage.faults
        self.urls = {"A": "http://a", "B": "http://b"}
        self.pools = ("pool",) if arm.services else ()
        self.fingerprints = {name: {"name": name, "pid": 100 + start} for name in ("A", "B", *self.pools)}
        self.capacity = {
            name: Capacity(block_size=BLOCK, num_blocks=self._faults.num_blocks(start)) for name in self.urls
        }
        self._cached: dict[str, dict[str, int]] = {"A": {}, "B": {}}
        self._tier: dict[tuple[str | None, str], int] = {}
        self._health: list[Finding] = []
        zero = dict.fromkeys(Counter, 0.0)
        self._counts = {name: dict(zero) for name in ("A", "B", *self.pools)}
        self._reset: set[str] = set()
        self.sent: list[Outgoing] = []

    async def send(self, outgoing: Outgoing) -> Observation:
        await asyncio.sleep(0)
        self.sent.append(outgoing)
        faults = self._faults if self._arm.name in self._faults.arms else Faults()
        faults.on_send(self._arm.name, outgoing.key)
        body = orjson.loads(outgoing.body)
        namespace, n, text = self._read(body)
        n += faults.usage_offset.get(outgoing.key, 0)
        local, external = self._look_up(outgoing.replica, namespace, n)
        local += faults.local.get(outgoing.key, 0)
        external += faults.external.get(outgoing.key, 0)
        if faults.no_transfer:
            external = 0
        self._count(outgoing, namespace, n, local, external)
        if outgoing.key in faults.reset:
            self._counts[outgoing.replica] = dict.fromkeys(Counter, 0.0)
        if outgoing.key in faults.dead:
            words = f"{outgoing.replica} exited with code 1"
            self._health.append(Finding(rule="process.died", severity="void", subject=outgoing.replica, detail=words))
        self._store(outgoing.replica, namespace, n)
        if outgoing.key in faults.fail:
            return self._observe(outgoing, Failed(kind=faults.fail[outgoing.key], detail="as told"), None, "")
        answer = faults.answers.get(outgoing.key, text)
        usage = Usage(
            prompt_tokens=n,
            completion_tokens=16,
            cached_tokens=local + external,
        )
        return self._observe(outgoing, Completed(finish_reason="stop"), usage, answer)

    def prepare(self, outgoing: Outgoing) -> Callable[[], Awaitable[Callable[[], Observation]]]:
        async def exchange() -> Callable[[], Observation]:
            seen = await self.send(outgoing)
            return lambda: seen

        return exchange

    async def snapshot(self) -> Mapping[str, Snapshot]:
        shown = {
            name: {c: v for c, v in counts.items() if c not in self._faults.hide}
            for name, counts in self._counts.items()
        }
        return {
            name: Snapshot(
                target=name,
                at_ns=self._stage.clock.now_ns(),
                samples=samples,
                running=0.0,
                waiting=0.0,
                process_start=1.0,
            )
            for name, samples in shown.items()
        }

    async def quiesce(self) -> list[Finding]:
        return []

    async def settle(self, _before: Mapping[str, Snapshot], _sent: Mapping[str, int]) -> list[Finding]:
        return []

    async def drain(self, _before: Mapping[str, Snapshot], _chunks: int) -> list[Finding]:
        if self.pools and self._faults.drain_s:
            self._stage.clock.ns += int(self._faults.drain_s * 1e9)
        return []

    def difference(self, before: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> WindowCounters:
        deltas = {}
        for name, first in before.items():
            deltas[name] = {}
            for counter in Counter:
                one, two = first.samples.get(counter), after[name].samples.get(counter)
                if one is None or two is None:
                    deltas[name][counter] = Missing(reason="not exposed")
                else:
                    deltas[name][counter] = (Increase if two >= one else Reset)(before=one, after=two)
        return WindowCounters(deltas=deltas)

    def health_findings(self) -> list[Finding]:
        found, self._health = self._health, []
        return found

    def contention(self) -> Mapping[str, object]:
        return {"steal_share": 0.0}

    async def raw_state(self) -> Mapping[str, bytes]:
        return {"A.metrics.txt": b"# fake\n"}

    def _read(self, body: dict) -> tuple[str, int, str]:
        if "namespace" in body:
            values = planted(body["namespace"])
            return body["namespace"], body["n"], orjson.dumps({f"v{i}": values[i] for i in body["asks"]}).decode()
        return body["cache_salt"], len(body["messages"][0]["content"].split()), "ok"

    def _look_up(self, replica: str, namespace: str, n: int) -> tuple[int, int]:
        here = self._cached[replica]
        cached = max(here.values(), default=0) if self._faults.salt_ignored_locally else here.get(namespace, 0)
        local = min(cached, n - 1) // BLOCK * BLOCK
        held = self._tier.get(self._shelf(replica, namespace), 0)
        if self._faults.salt_ignored_by_pool:
            held = max(self._tier.values(), default=0)
        c = min(held, n) // CHUNK * CHUNK
        beyond = max(0, c - local)
        return local, beyond - 1 if beyond and c == n else beyond

    def _shelf(self, replica: str, namespace: str) -> tuple[str | None, str]:
        return (replica if self._arm.reach == "replica" else None, namespace)

    def _store(self, replica: str, namespace: str, n: int) -> None:
        here = self._cached[replica]
        here[namespace] = max(here.get(namespace, 0), n + ANSWER // 2)
        if self._arm.reach != "none":
            shelf = self._shelf(replica, namespace)
            self._tier[shelf] = max(self._tier.get(shelf, 0), n + ANSWER // 2)

    def _count(self, outgoing: Outgoing, namespace: str, n: int, local: int, external: int) -> None:
        counts = self._counts[outgoing.replica]
        counts[Counter.LOCAL_QUERIES] += n
        counts[Counter.LOCAL_HITS] += local
        counts[Counter.PROMPT_TOKENS] += n
        counts[Counter.COMPUTED_TOKENS] += n - local - external
        if self._arm.reach != "none":
            counts[Counter.EXTERNAL_QUERIES] += n - local
        counts[Counter.EXTERNAL_HITS] += external
        other = "B" if outgoing.replica == "A" else "A"
        self._counts[other][Counter.LOCAL_QUERIES] += self._faults.stray_queries.get(outgoing.key, 0)
        if self.pools:
            self._count_pool(outgoing, local, external, namespace, n)

    def _count_pool(self, outgoing: Outgoing, local: int, external: int, namespace: str, n: int) -> None:
        pool = self._counts["pool"]
        held = self._tier.get((None, namespace), 0)
        real = min(held, n) // CHUNK * CHUNK
        beyond = max(0, real - local)
        honest = external == (beyond - 1 if beyond and real == n else beyond)
        pool[Counter.POOL_HIT_TOKENS] += real if honest else local + external
        if external > 0 and not self._faults.not_loaded:
            pool[Counter.POOL_LOADED_CHUNKS] += max(1, external // CHUNK)
        if outgoing.key in self._faults.pool_losses:
            pool[self._faults.pool_losses[outgoing.key]] += 2

    def _observe(self, outgoing: Outgoing, outcome: Completed | Failed, usage: Usage | None, text: str) -> Observation:
        now = self._stage.clock.now_ns()
        content = now + 5_000_000 if text else None
        self._stage.clock.ns += 10_000_000
        events = tuple(
            StreamEvent(index=i, at_ns=now + i, user_ns=now + i, read_index=i, kind=kind, text=words)
            for i, (kind, words) in enumerate((("role", ""), ("content", text), ("finish", None), ("done", None)))
        )
        return Observation(
            replica=outgoing.replica,
            url=self.urls[outgoing.replica],
            http_status=200,
            stamps=Stamps(
                start_ns=now,
                connect_start_ns=now + 10,
                connected_ns=now + 100,
                first_content_ns=content,
                last_content_ns=None if content is None else content + 1_000_000,
                end_ns=now + 9_000_000,
            ),
            stamp_source="callback",
            outcome=outcome,
            usage=usage,
            content=text,
            reasoning="",
            events=events,
            body_sha256=hashlib.sha256(outgoing.body).hexdigest(),
            request_id=outgoing.request_id,
        )


class FakeStage:
    """Starts fake arms and remembers that each was stopped."""

    def __init__(self, clock: FakeClock, faults: Faults | None = None) -> None:
        self.clock = clock
        self.faults = faults or Faults()
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.live: list[FakeLive] = []

    @asynccontextmanager
    async def start(self, arm: Arm, logs: Path) -> AsyncIterator[FakeLive]:
        self.started.append(arm.name)
        (logs / "A.log").write_text("started\n")
        if self.faults.start_error == len(self.started):
            raise EngineError("the engine did not start", phase="spawn", process_exit=1, log_tail="no such model")
        live = FakeLive(self, arm, len(self.started))
        self.live.append(live)
        try:
            yield live
        finally:
            self.stopped.append(arm.name)
