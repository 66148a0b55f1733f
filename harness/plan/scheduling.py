"""From a declaration to every request of every block.

Strategy: requests depend on the pair, never on the arm, so the blocks of a pair share the very same tuple. The order
of units is one seeded shuffle for the whole screening; keys are therefore equal in all blocks, only namespaces (and
the replica of a generation) change with the pair.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import orjson

from harness.model.planned import Plan, PlannedBlock, PlannedPayload, PlannedRequest
from harness.model.screening import Screening
from harness.plan import units
from harness.plan.order import is_aa, slots


def schedule(screening: Screening) -> Plan:
    """The whole plan: a pure function of the declaration (its seed included)."""
    blocks: list[PlannedBlock] = []
    measured: list[PlannedPayload] = []
    warming: list[PlannedPayload] = []
    per_pair: dict[int, tuple[tuple[PlannedRequest, ...], tuple[PlannedRequest, ...]]] = {}
    for slot in slots(screening.order, screening.baseline):
        if slot.pair not in per_pair:
            warm, main = _pair_units(screening, slot.pair)
            per_pair[slot.pair] = _pair_requests(screening, slot.pair, warm, main)
            warming.extend(units.payloads(warm))
            measured.extend(units.payloads(main))
        warmups, requests = per_pair[slot.pair]
        blocks.append(
            PlannedBlock(
                position=slot.position,
                pair=slot.pair,
                arm=slot.arm,
                plays=slot.plays,
                warmups=warmups,
                requests=requests,
            )
        )
    draft = Plan(
        screening=screening.name,
        digest="",
        aa=is_aa(screening.order),
        blocks=tuple(blocks),
        payloads=(*measured, *warming),
    )
    return replace(draft, digest=digest(draft))


def pair_requests(screening: Screening, pair: int) -> tuple[tuple[PlannedRequest, ...], tuple[PlannedRequest, ...]]:
    """Warm-ups and measured requests of one pair alone, for readers that walk thousands of blocks."""
    warm, main = _pair_units(screening, pair)
    return _pair_requests(screening, pair, warm, main)


def digest(plan: Plan) -> str:
    """SHA-256 of the plan's canonical JSON, its own digest left out; blocks of a pair are hashed once."""
    state = hashlib.sha256()
    header = {"screening": plan.screening, "aa": plan.aa, "payloads": plan.payloads}
    state.update(orjson.dumps(header, option=orjson.OPT_SORT_KEYS))
    seen: set[int] = set()
    for block in plan.blocks:
        outline = [block.position, block.pair, block.arm, block.plays]
        state.update(orjson.dumps(outline))
        if block.pair not in seen:
            seen.add(block.pair)
            state.update(orjson.dumps([block.warmups, block.requests], option=orjson.OPT_SORT_KEYS))
    return state.hexdigest()


def _pair_units(screening: Screening, pair: int) -> tuple[tuple[units.Unit, ...], tuple[units.Unit, ...]]:
    main = list(units.measured_units(screening, pair))
    # The same shuffle for every pair: the list of units has the same names in the same declared order each time.
    random.Random(f"{screening.seed}/order").shuffle(main)  # noqa: S311 - reproducible, not secret
    return units.warmup_units(screening, pair), tuple(main)


def _pair_requests(
    screening: Screening, pair: int, warm: tuple[units.Unit, ...], main: tuple[units.Unit, ...]
) -> tuple[tuple[PlannedRequest, ...], tuple[PlannedRequest, ...]]:
    warmups = units.requests(screening, pair, warm, 0)
    return warmups, units.requests(screening, pair, main, len(warmups))
