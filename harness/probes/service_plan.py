"""The request set of layer 5 as a pure plan: 264 requests + 12 warm-ups in full, 25 + 4 in short.

The paper gives the totals (207 + 57 requests, 12 warm-ups), the composition is ours:

* 207 = 23 chains of 9. One text P visits both replicas in both directions: cold(X), local(X), cross(Y),
  receiver-local(Y); then the same tokens under a fresh salt, which is the standing salt control and the other
  direction at once: cold(Y), local(Y), cross(X), receiver-local(X); then P again at X, where both salts' state lies.
* 57 = 3 groups of 19. Three alternating sessions of 6 turns, interleaved turn by turn (18), and once more the last
  body of the first session at the replica that did not serve it last (1).

Sizes are the declaration's own, taken in turn from the smallest on, so that the context is as long as what will be
measured. A size that is a multiple of the chunk is shortened by a few tokens: at such a size a local hit also loads
one chunk (interfaces.md §6), and the local control would not be free of transfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.model.errors import ConfigError, Issue
from harness.model.planned import Plan, PlannedPayload, PlannedRequest, Role, Workload
from harness.model.screening import RequestSpec, Screening, Size
from harness.plan import namespace, scheduling
from harness.plan.units import RESERVE_VALUES, USUAL_VALUES, Send, Unit, payloads, requests, warmup_units

FRESH = "~fresh"
"""Ends the payload id and namespace of the same tokens under a fresh salt."""
SIMULATED_SCALE = 0.1
"""Simulated engines run this much faster here: nothing is timed."""
_SHORTER = 7
_DEFAULT_TURN_TOKENS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """How many of what a set holds."""

    name: str
    chains: int
    groups: int
    sessions: int
    """Interleaved sessions of a group."""
    turns: int
    warmups: int
    """Warm-ups a replica."""


FULL = Composition(name="full", chains=23, groups=3, sessions=3, turns=6, warmups=6)
SHORT = Composition(name="short", chains=2, groups=1, sessions=2, turns=3, warmups=2)
SMALLEST = Composition(name="smallest", chains=1, groups=1, sessions=2, turns=2, warmups=1)
"""What a simulated screening runs by itself before its first block: seconds, and still every kind of reuse once."""
CHAIN_STEPS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """Every request of the layer, in order."""

    composition: Composition
    plan: Plan
    """Payloads to build; the fresh-salt variants are made from them and are not among them."""
    canary: str
    """Payload id whose tokens are sent under three salts before anything else."""
    warmups: tuple[PlannedRequest, ...]
    requests: tuple[PlannedRequest, ...]


def totals(composition: Composition, replicas: int = 2) -> Mapping[str, int]:
    """Requests by part; `chains` + `sessions` = `requests`."""
    chains = composition.chains * CHAIN_STEPS
    sessions = composition.groups * (composition.sessions * composition.turns + 1)
    warmups = composition.warmups * replicas
    return {"chains": chains, "sessions": sessions, "requests": chains + sessions, "warmups": warmups}


def validation_screening(screening: Screening, composition: Composition) -> Screening:
    """The declaration as the fixtures of this layer need it: own name, salts on, the set's warm-ups."""
    return replace(
        screening,
        name=f"{screening.name}-validation",
        request=replace(screening.request, salt=True),
        workloads=replace(
            screening.workloads, warmup=replace(screening.workloads.warmup, per_replica=composition.warmups)
        ),
    )


def service_plan(screening: Screening, composition: Composition) -> ServicePlan:
    """The plan of a set for a declaration; ConfigError where no declared size is longer than a chunk."""
    derived = validation_screening(screening, composition)
    maker = _Maker(derived, _scale(derived))
    sizes = long_sizes(derived)
    sizes = sizes if composition is FULL else sizes[:2]
    units = (
        *(maker.chain(i, sizes[i % len(sizes)]) for i in range(composition.chains)),
        *(maker.group(i, sizes[i % len(sizes)], composition) for i in range(composition.groups)),
    )
    warm = _scaled(warmup_units(derived, 1), maker.scale)
    canary = maker.payload("canary", maker.sized(sizes[0]), "warmup", 0)
    built = [planned for planned in payloads(units) if not planned.payload_id.endswith(FRESH)]
    draft = Plan(screening=derived.name, digest="", aa=False, blocks=(), payloads=(canary, *built, *payloads(warm)))
    warmups = requests(derived, 1, warm, 0)
    return ServicePlan(
        composition=composition,
        plan=replace(draft, digest=scheduling.digest(draft)),
        canary=canary.payload_id,
        warmups=warmups,
        requests=requests(derived, 1, units, len(warmups)),
    )


def long_sizes(screening: Screening) -> tuple[Size, ...]:
    """Declared sizes that are longer than a chunk, distinct, smallest first."""
    work, chunk = screening.workloads, screening.engine.chunk_size or screening.engine.block_size
    declared = [
        *(work.chains.sizes if work.chains else ()),
        *(work.sessions.sizes if work.sessions else ()),
        *(work.generation.sizes if work.generation else ()),
        *((work.concurrency.size,) if work.concurrency else ()),
    ]
    found = {size.tokens: size for size in reversed(declared) if size.tokens > chunk + _SHORTER}
    if not found:
        message = f"no declared size is longer than a chunk of {chunk} tokens, so nothing could be transferred"
        raise ConfigError(screening.name, [Issue(path="workloads", message=message, allowed=f"more than {chunk}")])
    return tuple(found[tokens] for tokens in sorted(found))


def _scale(screening: Screening) -> float | None:
    return SIMULATED_SCALE if screening.engine.kind == "sim" else None


def _scaled(units: tuple[Unit, ...], scale: float | None) -> tuple[Unit, ...]:
    if scale is None:
        return units
    return tuple(replace(unit, size=replace(unit.size, time_scale=scale)) for unit in units)


class _Maker:
    """Makes units of one derived screening."""

    def __init__(self, screening: Screening, scale: float | None) -> None:
        self.screening = screening
        self.scale = scale
        self._replicas = len(screening.engine.replicas)

    def sized(self, size: Size) -> Size:
        """The size as it is sent: no multiple of a chunk; compressed where simulated."""
        chunk = self.screening.engine.chunk_size or self.screening.engine.block_size
        tokens = size.tokens - _SHORTER if size.tokens % chunk == 0 else size.tokens
        return replace(size, tokens=tokens, time_scale=self.scale or size.time_scale)

    def payload(self, name: str, size: Size, workload: Workload, index: int) -> PlannedPayload:
        """A body with one turn that asks the usual three values."""
        return PlannedPayload(
            payload_id=f"v/{name}",
            pair=1,
            namespace=namespace(
                screening=f"{self.screening.name}/{name}",
                pair=1,
                workload=workload,
                size=size.label,
                output=None,
                window=None,
                placement=None,
                index=index,
            ),
            workload=workload,
            size=size.label,
            nominal_tokens=size.tokens,
            turn=0,
            turn_tokens=0,
            max_tokens=self.screening.request.max_tokens,
            forced_tokens=forced(self.screening.request),
            asks=self._usual(index),
            answer_in_history=False,
        )

    def _usual(self, place: int) -> tuple[int, ...]:
        """The usual three values; one of them in turn where a small model answers (prose): it finds one reliably."""
        prose = self.screening.checks.style == "prose"
        return (USUAL_VALUES[place % len(USUAL_VALUES)],) if prose else USUAL_VALUES

    def _asked(self, turn: int, turns: int, session: int) -> tuple[int, ...]:
        """The usual ones; in the last two turns a reserve value each, whose answer no history holds."""
        late = turn - (turns - len(RESERVE_VALUES))
        if self.screening.checks.reserve_values and late >= 0 and turn > 0:
            return (RESERVE_VALUES[late],)
        return self._usual(session + turn)

    def chain(self, index: int, declared: Size) -> Unit:
        """Nine requests of one text: both directions, two salts."""
        size = self.sized(declared)
        name = f"chains/{size.label}/{index}"
        text = self.payload(name, size, "chains", index)
        fresh = replace(text, payload_id=text.payload_id + FRESH, namespace=text.namespace + FRESH)
        x, y = index % self._replicas, (index + 1) % self._replicas
        steps: tuple[tuple[PlannedPayload, str, Role, int], ...] = (
            (text, "cold", "cold", x),
            (text, "local", "local", x),
            (text, "cross", "cross", y),
            (text, "receiver-local", "receiver_local", y),
            (fresh, "fresh-cold", "cold", y),
            (fresh, "fresh-local", "local", y),
            (fresh, "fresh-cross", "cross", x),
            (fresh, "fresh-receiver-local", "receiver_local", x),
            (text, "again", "local", x),
        )
        sends = tuple(Send(payload=body, step=step, role=role, replica=to) for body, step, role, to in steps)
        return Unit(name=name, workload="chains", size=size, sends=sends)

    def group(self, index: int, declared: Size, composition: Composition) -> Unit:
        """Interleaved alternating sessions, and the first one's last body once more at the other replica."""
        size = self.sized(declared)
        name = f"sessions/{size.label}/{index}"
        sessions = [self._turns(f"{name}/s{j}", size, composition, j) for j in range(composition.sessions)]
        sends = [
            Send(payload=bodies[turn], step=f"s{j}/turn-{turn + 1}", role="turn", replica=self._at(j + turn), session=j)
            for turn in range(composition.turns)
            for j, bodies in enumerate(sessions)
        ]
        closing = Send(
            payload=sessions[0][-1], step="s0/closing", role="turn", replica=self._at(composition.turns), session=0
        )
        return Unit(name=name, workload="sessions", size=size, sends=(*sends, closing), placement="alternating")

    def _at(self, place: int) -> int:
        return place % self._replicas

    def _turns(self, name: str, size: Size, composition: Composition, index: int) -> list[PlannedPayload]:
        first = self.payload(name, size, "sessions", index)
        declared = self.screening.workloads.sessions
        bodies, asked = [], set[int]()
        for turn in range(composition.turns):
            asks = self._asked(turn, composition.turns, index)
            bodies.append(
                replace(
                    first,
                    payload_id=f"{first.payload_id}/turn-{turn + 1}",
                    turn=turn,
                    turn_tokens=declared.turn_tokens if declared else _DEFAULT_TURN_TOKENS,
                    asks=asks,
                    answer_in_history=asked.issuperset(asks),
                )
            )
            asked.update(asks)
        return bodies


def forced(request: RequestSpec) -> int | None:
    """Output tokens of every request, where the declaration forces them for a model that cannot answer."""
    return request.max_tokens if request.ignore_eos and request.min_tokens == request.max_tokens else None
