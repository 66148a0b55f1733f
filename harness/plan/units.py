"""Matched units: the chains, sessions, generations and windows of one block pair, and its warm-ups.

Strategy: a unit is a list of sends (which body, to which replica, in which role), written down per workload exactly
as the method defines it. `requests` turns sends into planned requests and works out, per namespace, what was sent
before. A unit is contiguous in its block, so nothing but its own bodies can evict what it reuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from harness.model.planned import Check, PlannedPayload, PlannedRequest, Role, Workload
from harness.model.screening import AnswerForm, Placement, RequestSpec, Screening, Size
from harness.plan.namespaces import namespace

USUAL_VALUES = (0, 1, 2)
"""Planted values that are asked from the first turn on."""
RESERVE_VALUES = (3, 4)
"""Planted values asked once each, in late turns, so that the history does not hold the answer."""
WARMUP_LABEL = "warmup"
_OF_ONE_TURN = {"payload_id", "turn", "turn_tokens", "asks", "answer_in_history"}
_OF_ALL_TURNS = tuple(field.name for field in fields(PlannedPayload) if field.name not in _OF_ONE_TURN)
"""Fields that the bodies of a conversation have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One body sent once, within its unit."""

    payload: PlannedPayload
    step: str
    role: Role
    replica: int
    session: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A matched unit with its sends in order."""

    name: str
    workload: Workload
    size: Size
    sends: tuple[Send, ...]
    placement: Placement | None = None
    window: str | None = None


def measured_units(screening: Screening, pair: int) -> tuple[Unit, ...]:
    """Every measured unit of one pair, in declaration order (not yet shuffled)."""
    return (
        *_chains(screening, pair),
        *_sessions(screening, pair),
        *_generation(screening, pair),
        *_concurrency(screening, pair),
    )


def warmup_units(screening: Screening, pair: int) -> tuple[Unit, ...]:
    """The warm-ups of one pair, a unit a request.

    Replicas take turns; the last warm-up of every replica but the first repeats the first replica's last body, so
    that an arm which shares its cache touches the transfer path before anything is measured.
    """
    spec = screening.workloads.warmup
    size = Size(label=WARMUP_LABEL, tokens=spec.tokens, time_scale=spec.time_scale)
    units: list[Unit] = []
    payload: PlannedPayload | None = None
    index = 0
    for number in range(spec.per_replica):
        for place, replica in enumerate(screening.engine.replicas):
            transfer = number == spec.per_replica - 1 and place > 0
            if payload is None or not transfer:
                draft = _Draft(screening=screening, pair=pair, workload="warmup", size=size, index=index)
                payload = draft.payload(f"p{pair}/warmup/{index}")
                index += 1
            send = Send(payload=payload, step=f"warmup-{number + 1}", role="warmup", replica=place)
            units.append(Unit(name=f"warmup/{replica.name}", workload="warmup", size=size, sends=(send,)))
    return tuple(units)


def requests(screening: Screening, pair: int, units: tuple[Unit, ...], first_seq: int) -> tuple[PlannedRequest, ...]:
    """The planned requests of the units, in order; `first_seq` numbers the first of them."""
    sent_to: dict[tuple[str, int], dict[str, None]] = {}
    sent: dict[str, dict[str, None]] = {}
    result: list[PlannedRequest] = []
    for unit in units:
        for send in unit.sends:
            payload = send.payload
            here = sent_to.setdefault((payload.namespace, send.replica), {})
            anywhere = sent.setdefault(payload.namespace, {})
            before = (tuple(here), tuple(anywhere))
            result.append(_request(screening, pair, unit, send, seq=first_seq + len(result), before=before))
            here[payload.payload_id] = None
            anywhere[payload.payload_id] = None
    return tuple(result)


def _request(
    screening: Screening,
    pair: int,
    unit: Unit,
    send: Send,
    *,
    seq: int,
    before: tuple[tuple[str, ...], tuple[str, ...]],
) -> PlannedRequest:
    """The request of one send; `before` are the payloads sent earlier to its replica, and to any."""
    payload = send.payload
    return PlannedRequest(
        key=f"{unit.name}/{send.step}",
        seq=seq,
        pair=pair,
        workload=unit.workload,
        unit=unit.name,
        step=send.step,
        role=send.role,
        turn=payload.turn,
        size=unit.size.label,
        nominal_tokens=unit.size.tokens,
        placement=unit.placement,
        window=unit.window,
        session=send.session,
        replica=screening.engine.replicas[send.replica].name,
        payload_id=payload.payload_id,
        after_same_replica=before[0],
        after_any_replica=before[1],
        max_tokens=payload.max_tokens,
        forced_tokens=payload.forced_tokens,
        check=_check(screening, payload),
        answer_in_history=payload.answer_in_history,
        time_scale=unit.size.time_scale,
        warmup=unit.workload == "warmup",
    )


def payloads(units: tuple[Unit, ...]) -> tuple[PlannedPayload, ...]:
    """Distinct payloads of the units, in order of first use."""
    return tuple({send.payload.payload_id: send.payload for unit in units for send in unit.sends}.values())


def _check(screening: Screening, payload: PlannedPayload) -> Check:
    if payload.forced_tokens is not None and (not payload.asks or screening.checks.answers == "none"):
        return "forced"
    return "exact" if screening.checks.answers == "exact" else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """The fields that all payloads of one namespace share."""

    screening: Screening
    pair: int
    workload: Workload
    size: Size
    index: int
    output: int | None = None
    window: int | None = None
    placement: Placement | None = None
    answer_form: AnswerForm = "object"

    def payload(self, payload_id: str) -> PlannedPayload:
        """A body with a single turn."""
        request = self.screening.request
        return PlannedPayload(
            payload_id=payload_id,
            pair=self.pair,
            namespace=namespace(
                screening=self.screening.name,
                pair=self.pair,
                workload=self.workload,
                size=self.size.label,
                output=self.output,
                window=self.window,
                placement=self.placement,
                index=self.index,
            ),
            workload=self.workload,
            size=self.size.label,
            nominal_tokens=self.size.tokens,
            turn=0,
            turn_tokens=0,
            max_tokens=self.output or request.max_tokens,
            forced_tokens=self.output or _forced_everywhere(request),
            asks=() if self.output else USUAL_VALUES,
            answer_in_history=False,
            answer_form=self.answer_form,
        )

    def turns(self, prefix: str, *, turns: int, turn_tokens: int) -> Iterator[PlannedPayload]:
        """The bodies of a conversation, turn by turn."""
        # Not `replace` turn by turn: it is half of the time in which the plan of ten thousand blocks is made.
        first = self.payload(f"{prefix}/turn-1")
        shared = {name: getattr(first, name) for name in _OF_ALL_TURNS}
        asked: set[int] = set()
        for turn in range(turns):
            asks = _asks(turn, turns, reserve=self.screening.checks.reserve_values)
            yield PlannedPayload(
                **shared,
                payload_id=f"{prefix}/turn-{turn + 1}",
                turn=turn,
                turn_tokens=turn_tokens,
                asks=asks,
                answer_in_history=asked.issuperset(asks),
            )
            asked.update(asks)


def _forced_everywhere(request: RequestSpec) -> int | None:
    """Output tokens of every request, where the declaration forces them for a model that cannot answer."""
    return request.max_tokens if request.ignore_eos and request.min_tokens == request.max_tokens else None


def _asks(turn: int, turns: int, *, reserve: bool) -> tuple[int, ...]:
    """Values asked in a turn: the usual three; in the last two turns a reserve value each, both where one is left."""
    late = turn - max(1, turns - len(RESERVE_VALUES))
    if not reserve or turn == 0 or late < 0:
        return USUAL_VALUES
    return RESERVE_VALUES if turns == len(RESERVE_VALUES) else (RESERVE_VALUES[late],)


def _chains(screening: Screening, pair: int) -> Iterator[Unit]:
    spec = screening.workloads.chains
    if spec is None:
        return
    replicas = len(screening.engine.replicas)
    for size in spec.sizes:
        for index in range(spec.chains):
            name = f"chains/{size.label}/{index}"
            draft = _Draft(screening=screening, pair=pair, workload="chains", size=size, index=index)
            payload = draft.payload(f"p{pair}/{name}")
            here, there = index % replicas, (index + 1) % replicas
            steps: tuple[tuple[str, Role, int], ...] = (
                ("cold", "cold", here),
                ("local-1", "local", here),
                ("local-2", "local", here),
                ("cross", "cross", there),
                ("receiver-local", "receiver_local", there),
            )
            sends = tuple(Send(payload=payload, step=step, role=role, replica=to) for step, role, to in steps)
            yield Unit(name=name, workload="chains", size=size, sends=sends)


def _sessions(screening: Screening, pair: int) -> Iterator[Unit]:
    spec = screening.workloads.sessions
    if spec is None:
        return
    for size in spec.sizes:
        for placement in spec.placements:
            for index in range(spec.sessions):
                name = f"sessions/{size.label}/{placement}/{index}"
                draft = _Draft(
                    screening=screening, pair=pair, workload="sessions", size=size, index=index, placement=placement
                )
                bodies = draft.turns(f"p{pair}/{name}", turns=spec.turns, turn_tokens=spec.turn_tokens)
                sends = tuple(_turn_send(screening, body, index, placement, prefix="") for body in bodies)
                yield Unit(name=name, workload="sessions", size=size, sends=sends, placement=placement)


def _generation(screening: Screening, pair: int) -> Iterator[Unit]:
    spec = screening.workloads.generation
    if spec is None:
        return
    cells = [(size, output) for size in spec.sizes for output in spec.outputs]
    for cell, (size, output) in enumerate(cells):
        name = f"generation/{size.label}/{output}"
        draft = _Draft(screening=screening, pair=pair, workload="generation", size=size, index=0, output=output)
        payload = draft.payload(f"p{pair}/{name}")
        # The assignment swaps in every second pair, so that a faster GPU does not pass for an effect of the cell.
        replica = (cell + pair - 1) % len(screening.engine.replicas)
        sends = (
            Send(payload=payload, step="cold", role="cold", replica=replica),
            Send(payload=payload, step="hot", role="hot", replica=replica),
        )
        yield Unit(name=name, workload="generation", size=size, sends=sends)


def _concurrency(screening: Screening, pair: int) -> Iterator[Unit]:
    spec = screening.workloads.concurrency
    if spec is None:
        return
    for count in spec.windows:
        for placement in spec.placements:
            name = f"concurrency/{count}/{placement}"
            sessions = [
                _Draft(
                    screening=screening,
                    pair=pair,
                    workload="concurrency",
                    size=spec.size,
                    index=index,
                    window=count,
                    placement=placement,
                    answer_form=spec.answer_form,
                ).turns(f"p{pair}/{name}/s{index:02d}", turns=spec.turns, turn_tokens=spec.turn_tokens)
                for index in range(count)
            ]
            sends = tuple(
                _turn_send(screening, body, index, placement, prefix=f"s{index:02d}/")
                for turn in zip(*sessions, strict=True)
                for index, body in enumerate(turn)
            )
            yield Unit(name=name, workload="concurrency", size=spec.size, sends=sends, placement=placement, window=name)


def _turn_send(screening: Screening, body: PlannedPayload, index: int, placement: Placement, *, prefix: str) -> Send:
    """Session `index` starts on replica index mod R; an alternating one moves on with every turn."""
    moved = body.turn if placement == "alternating" else 0
    return Send(
        payload=body,
        step=f"{prefix}turn-{body.turn + 1}",
        role="turn",
        replica=(index + moved) % len(screening.engine.replicas),
        session=index,
    )
