"""The plan of any declaration: totals, order, bijection between arms, namespaces."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config import from_json, load, to_json
from harness.config.canonical import with_digest
from harness.model.planned import Plan
from harness.model.screening import (
    Arm,
    ChainsSpec,
    ConcurrencySpec,
    GenerationSpec,
    Screening,
    SessionsSpec,
    Size,
    WarmupSpec,
    Workloads,
)
from harness.plan import namespace, order_problem, salt_of, schedule, totals

BASE = load("quick")
ORDERS = {
    2: [("off", "on", "on", "off"), ("off", "on", "on", "off", "on", "off", "off", "on"), ("off", "on")],
    1: [("off",) * 4, ("off",) * 8],
    3: [("off", "native", "on", "on", "native", "off")],
}
ARMS = {
    "off": Arm(name="off", reach="none"),
    "on": Arm(name="on", reach="all", services=("pool",)),
    "native": Arm(name="native", reach="replica", args=("--x",)),
}

sizes = st.lists(st.integers(300, 300_000), min_size=1, max_size=3, unique=True).map(
    lambda tokens: tuple(Size(label=f"{n}", tokens=n) for n in tokens)
)
placements = st.sampled_from([("fixed",), ("alternating",), ("fixed", "alternating")])


@st.composite
def workloads(draw: st.DrawFn) -> Workloads:
    chosen = draw(st.sets(st.sampled_from(["chains", "sessions", "generation", "concurrency"]), min_size=1))
    turns = draw(st.integers(2, 7))
    return Workloads(
        chains=ChainsSpec(sizes=draw(sizes), chains=draw(st.integers(1, 4))) if "chains" in chosen else None,
        sessions=SessionsSpec(
            sizes=draw(sizes),
            placements=draw(placements),
            sessions=draw(st.integers(1, 3)),
            turns=turns,
            turn_tokens=draw(st.integers(100, 2000)),
        )
        if "sessions" in chosen
        else None,
        generation=GenerationSpec(
            sizes=draw(sizes), outputs=tuple(draw(st.sets(st.integers(2, 4096), min_size=1, max_size=3)))
        )
        if "generation" in chosen
        else None,
        concurrency=ConcurrencySpec(
            size=draw(sizes)[0],
            windows=tuple(draw(st.sets(st.sampled_from([2, 4, 6, 8]), min_size=1))),
            placements=draw(placements),
            turns=turns,
            turn_tokens=1055,
        )
        if "concurrency" in chosen
        else None,
        warmup=WarmupSpec(per_replica=draw(st.integers(0, 3)), tokens=600),
    )


@st.composite
def screenings(draw: st.DrawFn) -> Screening:
    order = draw(st.sampled_from([order for orders in ORDERS.values() for order in orders]))
    drawn = replace(
        BASE,
        arms=tuple(ARMS[name] for name in dict.fromkeys(order)),
        order=order,
        seed=draw(st.integers(0, 2**32)),
        workloads=draw(workloads()),
        checks=replace(BASE.checks, reserve_values=draw(st.booleans())),
    )
    return with_digest(drawn)


@given(screenings())
@settings(max_examples=60, deadline=None)
def test_totals_follow_from_the_declaration(screening: Screening) -> None:
    counted = totals(schedule(screening), screening)
    w = screening.workloads
    replicas = len(screening.engine.replicas)
    per_block, bodies = 0, 0
    if w.chains:
        per_block += 5 * len(w.chains.sizes) * w.chains.chains
        bodies += len(w.chains.sizes) * w.chains.chains
    if w.sessions:
        turns = len(w.sessions.sizes) * len(w.sessions.placements) * w.sessions.sessions * w.sessions.turns
        per_block, bodies = per_block + turns, bodies + turns
    if w.generation:
        cells = len(w.generation.sizes) * len(w.generation.outputs)
        per_block, bodies = per_block + 2 * cells, bodies + cells
    if w.concurrency:
        turns = sum(w.concurrency.windows) * len(w.concurrency.placements) * w.concurrency.turns
        per_block, bodies = per_block + turns, bodies + turns
    blocks = len(screening.order)
    group = max(2, len(set(screening.order)))
    assert counted.measured_per_block == per_block
    assert counted.measured == blocks * per_block
    assert counted.warmups == blocks * w.warmup.per_replica * replicas
    assert counted.distinct_payloads == blocks // group * bodies
    assert counted.fixture_files == blocks * bodies
    assert counted.request_pairs == blocks // group * (group - 1) * per_block
    assert counted.exact_checks + counted.forced_checks + counted.unchecked == counted.measured


@given(screenings())
@settings(max_examples=40, deadline=None)
def test_blocks_of_a_pair_are_a_bijection_by_key_payload_and_replica(screening: Screening) -> None:
    plan = schedule(screening)
    for pair in {block.pair for block in plan.blocks}:
        blocks = [block for block in plan.blocks if block.pair == pair]
        assert len({block.plays for block in blocks}) == len(blocks)
        for block in blocks[1:]:
            assert block.requests == blocks[0].requests
            assert block.warmups == blocks[0].warmups
        keys = [request.key for request in (*blocks[0].warmups, *blocks[0].requests)]
        assert len(set(keys)) == len(keys)


@given(screenings())
@settings(max_examples=40, deadline=None)
def test_the_order_of_units_is_equal_in_all_blocks(screening: Screening) -> None:
    plan = schedule(screening)
    assert len({tuple(request.key for request in block.requests) for block in plan.blocks}) == 1


@given(screenings())
@settings(max_examples=40, deadline=None)
def test_a_namespace_is_cold_when_it_is_first_sent(screening: Screening) -> None:
    plan = schedule(screening)
    spaces = {payload.payload_id: payload.namespace for payload in plan.payloads}
    for block in plan.blocks:
        seen: set[str] = set()
        for request in (*block.warmups, *block.requests):
            space = spaces[request.payload_id]
            assert bool(request.after_any_replica) == (space in seen)
            assert set(request.after_same_replica) <= set(request.after_any_replica)
            if request.role == "cold":
                assert space not in seen
            seen.add(space)


@given(screenings())
@settings(max_examples=40, deadline=None)
def test_reserve_values_are_asked_once_a_session(screening: Screening) -> None:
    plan = schedule(screening)
    asked: dict[str, Counter[int]] = {}
    for payload in plan.payloads:
        if payload.turn_tokens:
            asked.setdefault(payload.namespace, Counter()).update(payload.asks)
    for counts in asked.values():
        expected = 1 if screening.checks.reserve_values else 0
        assert (counts[3], counts[4]) == (expected, expected)


@given(screenings(), st.permutations(["alpha", "beta", "gamma"]))
@settings(max_examples=40, deadline=None)
def test_namespaces_do_not_depend_on_the_names_of_arms(screening: Screening, names: list[str]) -> None:
    renamed = dict(zip(dict.fromkeys(screening.order), names, strict=False))
    other = replace(
        screening,
        arms=tuple(replace(arm, name=renamed[arm.name]) for arm in screening.arms),
        order=tuple(renamed[name] for name in screening.order),
        baseline=renamed[screening.baseline],
    )
    assert _spaces(schedule(screening)) == _spaces(schedule(other))


@given(screenings())
@settings(max_examples=40, deadline=None)
def test_canonical_json_round_trips(screening: Screening) -> None:
    assert from_json(to_json(screening)) == screening


fields = st.fixed_dictionaries(
    {
        "screening": st.sampled_from(["quick", "paper"]),
        "pair": st.integers(1, 3),
        "workload": st.sampled_from(["chains", "sessions", "generation", "concurrency", "warmup"]),
        "size": st.sampled_from(["8k", "32k"]),
        "output": st.sampled_from([None, 512, 2048]),
        "window": st.sampled_from([None, 4, 8]),
        "placement": st.sampled_from([None, "fixed", "alternating"]),
        "index": st.integers(0, 3),
    }
)


@given(fields, fields)
@settings(max_examples=300)
def test_a_namespace_changes_with_every_field_and_with_nothing_else(one: dict, other: dict) -> None:
    assert (namespace(**one) == namespace(**other)) == (one == other)


@given(fields)
def test_a_salt_is_short_and_of_harmless_characters(values: dict) -> None:
    salt = salt_of(namespace(**values))
    assert re.fullmatch(r"[0-9a-z-]{1,32}", salt)
    assert namespace(**values) not in salt


@given(st.lists(st.sampled_from(["off", "on", "native"]), min_size=2, max_size=12))
@settings(max_examples=200)
def test_an_accepted_order_separates_arm_from_position(order: list[str]) -> None:
    """In a counterbalanced order every arm has the same mean position, so linear drift cancels."""
    if order_problem(order, counterbalanced=True) or len(set(order)) == 1:
        return
    means = {arm: sum(i for i, a in enumerate(order) if a == arm) / order.count(arm) for arm in order}
    assert max(means.values()) == min(means.values())


def _spaces(plan: Plan) -> list[str]:
    return [payload.namespace for payload in plan.payloads]
