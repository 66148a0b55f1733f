from __future__ import annotations

from collections import Counter
from dataclasses import replace

import orjson

from harness.model.planned import Plan, PlannedBlock
from harness.model.screening import Screening
from harness.plan import schedule, totals, totals_json, totals_text


def test_paper_totals_are_the_derived_figures(paper: Screening, paper_plan: Plan) -> None:
    counted = totals(paper_plan, paper)
    assert (counted.measured_per_block, counted.warmups_per_block) == (192, 6)
    assert (counted.measured, counted.warmups) == (768, 24)
    assert (counted.request_pairs, counted.distinct_payloads, counted.fixture_files) == (384, 312, 624)
    assert (counted.exact_checks, counted.forced_checks, counted.unchecked) == (736, 32, 0)
    assert counted.answer_in_history == 448


def test_paper_workloads_have_their_requests(paper: Screening, paper_plan: Plan) -> None:
    assert totals(paper_plan, paper).by_workload == {
        "chains": 40,
        "sessions": 48,
        "generation": 8,
        "concurrency": 96,
    }


def test_totals_are_printed_and_given_as_json(paper: Screening, paper_plan: Plan) -> None:
    text = totals_text(paper_plan, paper)
    assert "448  checks whose answer already stands in the history" in text
    document = orjson.loads(totals_json(paper_plan, paper))
    assert (document["measured"], document["distinct_payloads"], document["fixture_files"]) == (768, 312, 624)


def test_blocks_pair_as_one_two_and_four_three(paper_plan: Plan) -> None:
    outline = [(block.position, block.pair, block.arm, block.plays) for block in paper_plan.blocks]
    assert outline == [(1, 1, "off", "off"), (2, 1, "on", "on"), (3, 2, "on", "on"), (4, 2, "off", "off")]


def test_partners_send_the_same_payloads_to_the_same_replicas(paper_plan: Plan) -> None:
    off, on, on_again, off_again = paper_plan.blocks
    assert _routes(off) == _routes(on)
    assert _routes(on_again) == _routes(off_again)


def test_keys_and_their_order_are_equal_in_all_blocks(paper_plan: Plan) -> None:
    orders = {tuple(request.key for request in block.requests) for block in paper_plan.blocks}
    assert len(orders) == 1


def test_pairs_share_no_namespace(paper_plan: Plan) -> None:
    first, second = ({p.namespace for p in paper_plan.payloads if p.pair == pair} for pair in (1, 2))
    assert len(first) == 8 + 8 + 4 + 24 + 5
    assert not first & second


def test_between_pairs_nothing_moves_but_generation(paper_plan: Plan) -> None:
    first, second = paper_plan.blocks[0], paper_plan.blocks[2]
    moved = {one.workload for one, other in _together(first, second) if one.replica != other.replica}
    stayed = {one.workload for one, other in _together(first, second) if one.replica == other.replica}
    assert moved == {"generation"}
    assert stayed == {"chains", "sessions", "concurrency"}


def test_generation_cells_alternate_over_the_replicas(paper_plan: Plan) -> None:
    cells = {r.unit: r.replica for r in paper_plan.blocks[0].requests if r.workload == "generation"}
    assert cells == {
        "generation/8k/512": "A",
        "generation/8k/2048": "B",
        "generation/128k/512": "A",
        "generation/128k/2048": "B",
    }


def test_generation_forces_its_length_and_asks_nothing(paper_plan: Plan) -> None:
    requests = [r for r in paper_plan.blocks[0].requests if r.workload == "generation"]
    assert Counter((r.role, r.forced_tokens, r.max_tokens, r.check) for r in requests) == {
        ("cold", 512, 512, "forced"): 2,
        ("hot", 512, 512, "forced"): 2,
        ("cold", 2048, 2048, "forced"): 2,
        ("hot", 2048, 2048, "forced"): 2,
    }
    assert {p.asks for p in paper_plan.payloads if p.workload == "generation"} == {()}


def test_units_are_contiguous(paper_plan: Plan) -> None:
    units = [request.unit for request in paper_plan.blocks[0].requests]
    changes = [unit for unit, before in zip(units, [None, *units], strict=False) if unit != before]
    assert len(changes) == len(set(units)) == 8 + 8 + 4 + 4


def test_another_seed_orders_the_same_units_differently(paper: Screening, paper_plan: Plan) -> None:
    other = schedule(replace(paper, seed=paper.seed + 1))
    here, there = ([r.unit for r in plan.blocks[0].requests] for plan in (paper_plan, other))
    assert here != there
    assert sorted(here) == sorted(there)


def test_the_plan_is_a_pure_function(paper: Screening, paper_plan: Plan) -> None:
    assert schedule(paper) == paper_plan


def test_an_increment_of_1055_tokens_a_later_turn(paper_plan: Plan) -> None:
    assert {p.turn_tokens for p in paper_plan.payloads if p.workload in ("sessions", "concurrency")} == {1055}
    assert {p.turn_tokens for p in paper_plan.payloads if p.workload in ("chains", "generation")} == {0}


def _routes(block: PlannedBlock) -> list[tuple[str, str, str]]:
    return [(r.key, r.payload_id, r.replica) for r in (*block.warmups, *block.requests)]


def _together(first: PlannedBlock, second: PlannedBlock) -> list[tuple]:
    return list(zip(first.requests, second.requests, strict=True))
