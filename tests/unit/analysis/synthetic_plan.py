"""Made-up declarations, plans and payloads: the first half of `synthetic`, which see."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from harness.model.payload import Payload
from harness.model.planned import Plan, PlannedBlock, PlannedPayload, PlannedRequest
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
    SessionsSpec,
    Size,
    WarmupSpec,
    Workloads,
)

BLOCK, CHUNK = 16, 256
TOKENS = {"8k": 8_000, "32k": 32_000, "128k": 128_000, "256k": 256_000}


def screening(
    *,
    order: Sequence[str] = ("off", "on", "on", "off"),
    sizes: Sequence[str] = ("8k", "32k"),
    chains: int = 2,
    sessions: int = 2,
    session_sizes: Sequence[str] = ("32k",),
    turns: int = 3,
    window_turns: int = 2,
    generation: Sequence[str] = ("8k",),
    concurrency: Sequence[int] = (4,),
    time_scale: float = 1.0,
    name: str = "synthetic",
) -> Screening:
    """A declaration with two replicas; arms are the names in `order` (`on…` shares, `native…` keeps for itself)."""
    size = {label: Size(label=label, tokens=TOKENS[label], time_scale=time_scale) for label in TOKENS}
    names = list(dict.fromkeys(order))
    reach = {arm: "all" if arm.startswith("on") else "replica" if arm.startswith("native") else "none" for arm in names}
    baseline = next((arm for arm in names if reach[arm] == "none"), names[0])
    return Screening(
        name=name,
        description="made up",
        engine=EngineSpec(
            kind="sim",
            model="m",
            tokenizer="fixtures/tokenizer",
            replicas=(ReplicaSpec(name="A", url="http://a"), ReplicaSpec(name="B", url="http://b")),
            block_size=BLOCK,
            chunk_size=CHUNK,
        ),
        arms=tuple(Arm(name=arm, reach=reach[arm]) for arm in names),
        services=(),
        factor=("reach",),
        order=tuple(order),
        baseline=baseline,
        seed=1,
        request=RequestSpec(),
        workloads=Workloads(
            chains=ChainsSpec(sizes=tuple(size[s] for s in sizes), chains=chains) if chains else None,
            sessions=SessionsSpec(
                sizes=tuple(size[s] for s in session_sizes),
                placements=("fixed", "alternating"),
                sessions=sessions,
                turns=turns,
                turn_tokens=1_055,
            )
            if sessions
            else None,
            generation=GenerationSpec(sizes=tuple(size[s] for s in generation), outputs=(512, 2_048))
            if generation
            else None,
            concurrency=ConcurrencySpec(
                size=size["32k"],
                windows=tuple(concurrency),
                placements=("fixed", "alternating"),
                turns=window_turns,
                turn_tokens=1_055,
            )
            if concurrency
            else None,
            warmup=WarmupSpec(time_scale=time_scale),
        ),
        checks=ChecksSpec(),
        digest=hashlib.sha256(f"{name}{tuple(order)}".encode()).hexdigest(),
    )


def paper(order: Sequence[str] = ("off", "on", "on", "off"), **changes: Any) -> Screening:
    """The 192 requests of the paper's block."""
    return screening(
        order=order,
        sizes=tuple(TOKENS),
        session_sizes=("32k", "128k"),
        turns=6,
        window_turns=4,
        generation=("8k", "128k"),
        concurrency=(4, 8),
        name="paper",
        **changes,
    )


# --- plan ---------------------------------------------------------------------------------------------------


def _request(pair: int, seq: int, unit: str, step: str, **facts: Any) -> PlannedRequest:
    workload = unit.split("/", 1)[0]
    defaults: dict[str, Any] = {
        "turn": 0,
        "placement": None,
        "window": None,
        "session": None,
        "after_same_replica": (),
        "after_any_replica": (),
        "max_tokens": 64,
        "forced_tokens": None,
        "check": "exact",
        "answer_in_history": False,
        "time_scale": 1.0,
        "warmup": False,
    }
    return PlannedRequest(
        key=f"{unit}/{step}", seq=seq, pair=pair, workload=workload, unit=unit, step=step, **(defaults | facts)
    )  # type: ignore[arg-type]


def _chains(spec: ChainsSpec, pair: int) -> list[PlannedRequest]:
    rows = []
    for size in spec.sizes:
        for i in range(spec.chains):
            x, y = ("A", "B") if i % 2 == 0 else ("B", "A")
            unit = f"chains/{size.label}/{i}"
            pid = f"p{pair}/{unit}/turn-1"
            steps = (
                ("cold", "cold", x),
                ("local-1", "local", x),
                ("local-2", "local", x),
                ("cross", "cross", y),
                ("receiver-local", "receiver_local", y),
            )
            for k, (step, role, replica) in enumerate(steps):
                rows.append(
                    _request(
                        pair,
                        0,
                        unit,
                        step,
                        role=role,
                        size=size.label,
                        nominal_tokens=size.tokens,
                        replica=replica,
                        payload_id=pid,
                        time_scale=size.time_scale,
                        after_same_replica=(pid,) if step not in ("cold", "cross") else (),
                        after_any_replica=(pid,) if k else (),
                    )
                )
    return rows


def _turns(
    pair: int, unit: str, size: Size, *, placement: str, index: int, turns: int, window: str | None = None
) -> list[PlannedRequest]:
    rows, sent = [], []
    for turn in range(turns):
        replica = "AB"[(index + (turn if placement == "alternating" else 0)) % 2]
        step = f"s{index:02d}/turn-{turn + 1}" if window else f"turn-{turn + 1}"
        pid = f"p{pair}/{unit}/{step}"
        rows.append(
            _request(
                pair,
                0,
                unit,
                step,
                role="turn",
                size=size.label,
                nominal_tokens=size.tokens,
                replica=replica,
                payload_id=pid,
                time_scale=size.time_scale,
                turn=turn,
                placement=placement,
                window=window,
                session=index,
                answer_in_history=turn > 0,
                after_same_replica=tuple(p for p, r in sent if r == replica),
                after_any_replica=tuple(p for p, _ in sent),
            )
        )
        sent.append((pid, replica))
    return rows


def _generation(spec: GenerationSpec, pair: int) -> list[PlannedRequest]:
    rows, cell = [], 0
    for size in spec.sizes:
        for output in spec.outputs:
            replica = "AB"[(cell + pair + 1) % 2]
            unit = f"generation/{size.label}/{output}"
            pid = f"p{pair}/{unit}/turn-1"
            rows.extend(
                _request(
                    pair,
                    0,
                    unit,
                    step,
                    role=step,
                    size=size.label,
                    nominal_tokens=size.tokens,
                    replica=replica,
                    payload_id=pid,
                    time_scale=size.time_scale,
                    max_tokens=output,
                    forced_tokens=output,
                    check="forced",
                    after_same_replica=(pid,) if step == "hot" else (),
                    after_any_replica=(pid,) if step == "hot" else (),
                )
                for step in ("cold", "hot")
            )
            cell += 1
    return rows


def _sessions(spec: SessionsSpec, pair: int) -> list[PlannedRequest]:
    return [
        request
        for size in spec.sizes
        for placement in spec.placements
        for i in range(spec.sessions)
        for request in _turns(
            pair,
            f"sessions/{size.label}/{placement}/{i}",
            size,
            placement=placement,
            index=i,
            turns=spec.turns,
        )
    ]


def _windows(spec: ConcurrencySpec, pair: int) -> list[PlannedRequest]:
    return [
        request
        for count in spec.windows
        for placement in spec.placements
        for i in range(count)
        for request in _turns(
            pair,
            f"concurrency/{count}/{placement}",
            spec.size,
            placement=placement,
            index=i,
            turns=spec.turns,
            window=f"concurrency/{count}/{placement}",
        )
    ]


def _pair_requests(work: Workloads, pair: int) -> tuple[tuple[PlannedRequest, ...], tuple[PlannedRequest, ...]]:
    warm = [
        _request(
            pair,
            i,
            "warmup",
            f"w{i}",
            role="warmup",
            size="warmup",
            nominal_tokens=512,
            replica="AB"[i % 2],
            payload_id=f"p{pair}/warmup/w{i}",
            check="none",
            warmup=True,
            time_scale=work.warmup.time_scale,
        )
        for i in range(2 * work.warmup.per_replica)
    ]
    rows = [
        *(_chains(work.chains, pair) if work.chains else ()),
        *(_sessions(work.sessions, pair) if work.sessions else ()),
        *(_generation(work.generation, pair) if work.generation else ()),
        *(_windows(work.concurrency, pair) if work.concurrency else ()),
    ]
    return tuple(warm), tuple(replace(row, seq=len(warm) + i) for i, row in enumerate(rows))


def _payloads(requests: Sequence[PlannedRequest]) -> list[PlannedPayload]:
    seen: dict[str, PlannedPayload] = {}
    for r in requests:
        seen.setdefault(
            r.payload_id,
            PlannedPayload(
                payload_id=r.payload_id,
                pair=r.pair,
                namespace=hexed(r.payload_id.rsplit("/turn", 1)[0]),
                workload=r.workload,
                size=r.size,
                nominal_tokens=r.nominal_tokens,
                turn=r.turn,
                turn_tokens=1_055 if r.turn else 0,
                max_tokens=r.max_tokens,
                forced_tokens=r.forced_tokens,
                asks=(0, 1, 2),
                answer_in_history=r.answer_in_history,
            ),
        )
    return list(seen.values())


@cache
def hexed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan(declared: Screening) -> Plan:
    """The plan of the declaration; the blocks of a pair share their request objects."""
    aa = len(set(declared.order)) == 1
    size = 2 if aa else len(declared.arms)
    shared: dict[int, tuple[tuple[PlannedRequest, ...], tuple[PlannedRequest, ...]]] = {}
    blocks = []
    for position, arm in enumerate(declared.order, start=1):
        pair = (position - 1) // size + 1
        if pair not in shared:
            shared[pair] = _pair_requests(declared.workloads, pair)
        plays = arm if not aa or position % 4 not in (2, 3) else "on" if arm != "on" else "pseudo-on"
        blocks.append(
            PlannedBlock(
                position=position, pair=pair, arm=arm, plays=plays, warmups=shared[pair][0], requests=shared[pair][1]
            )
        )
    payloads = [p for warm, rest in shared.values() for p in _payloads(rest)] + [
        p for warm, _ in shared.values() for p in _payloads(warm)
    ]
    return Plan(screening=declared.name, digest=declared.digest, aa=aa, blocks=tuple(blocks), payloads=tuple(payloads))


# --- payloads -----------------------------------------------------------------------------------------------


def prompt_tokens(request: PlannedRequest) -> int:
    """Made-up exact count: 7 below the nominal size, 1,055 more for each later turn."""
    return request.nominal_tokens - 7 + 1_055 * request.turn


def payload(request: PlannedRequest, all_of_pair: Mapping[str, PlannedRequest]) -> Payload:
    """The payload of a request: earlier turns are whole prefixes of it, 30 tokens short at the end."""
    n = prompt_tokens(request)
    lcp = {}
    for earlier in request.after_any_replica:
        m = prompt_tokens(all_of_pair[earlier])
        lcp[earlier] = n if earlier == request.payload_id else m - 30
    expected = {"alpha": n * 3 % 899_981 + 100_000} if request.check == "exact" else None
    return Payload(
        payload_id=request.payload_id,
        namespace=hexed(request.payload_id.rsplit("/turn", 1)[0]),
        salt=hexed(request.payload_id)[:16],
        sha256=hexed("body of " + request.payload_id),
        nbytes=4 * n,
        prompt_tokens=n,
        path=request.payload_id.replace("/", "-") + ".json",
        values=(),
        expected=expected,
        lcp=lcp,
        lcp_with_answer=lcp,
        largest_foreign_lcp=3,
    )


def payload_fields(built: Payload) -> dict[str, Any]:
    """A payload as payloads.json stores it."""
    return {name: getattr(built, name) for name in built.__dataclass_fields__} | {"values": []}
