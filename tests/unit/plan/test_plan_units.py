from __future__ import annotations

from dataclasses import replace

import pytest

from harness.config import load
from harness.model.planned import Plan, PlannedRequest
from harness.model.screening import Screening
from harness.plan import describe, pair_requests, request_rows, requests_text, schedule, totals


def unit(plan: Plan, name: str) -> list[PlannedRequest]:
    return [request for request in plan.blocks[0].requests if request.unit == name]


def test_a_chain_goes_from_its_owner_to_the_receiver(paper_plan: Plan) -> None:
    steps = [(r.step, r.role, r.replica) for r in unit(paper_plan, "chains/8k/0")]
    assert steps == [
        ("cold", "cold", "A"),
        ("local-1", "local", "A"),
        ("local-2", "local", "A"),
        ("cross", "cross", "B"),
        ("receiver-local", "receiver_local", "B"),
    ]


def test_odd_chains_go_the_other_way(paper_plan: Plan) -> None:
    assert [r.replica for r in unit(paper_plan, "chains/8k/1")] == ["B", "B", "B", "A", "A"]


def test_a_chain_knows_what_either_replica_saw_before(paper_plan: Plan) -> None:
    body = ("p1/chains/8k/0",)
    held = [(r.after_same_replica, r.after_any_replica) for r in unit(paper_plan, "chains/8k/0")]
    assert held == [((), ()), (body, body), (body, body), ((), body), (body, body)]


def test_fixed_sessions_stay_and_alternating_ones_switch_every_turn(paper_plan: Plan) -> None:
    places = {
        (placement, index): "".join(r.replica for r in unit(paper_plan, f"sessions/32k/{placement}/{index}"))
        for placement in ("fixed", "alternating")
        for index in (0, 1)
    }
    assert places == {
        ("fixed", 0): "AAAAAA",
        ("fixed", 1): "BBBBBB",
        ("alternating", 0): "ABABAB",
        ("alternating", 1): "BABABA",
    }


def test_an_alternating_turn_finds_older_turns_here_and_the_last_one_elsewhere(paper_plan: Plan) -> None:
    fourth = unit(paper_plan, "sessions/32k/alternating/0")[3]
    turns = [f"p1/sessions/32k/alternating/0/turn-{number}" for number in (1, 2, 3)]
    assert fourth.after_same_replica == (turns[1],)
    assert fourth.after_any_replica == tuple(turns)


def test_payload_ids_name_pair_unit_and_turn(paper_plan: Plan) -> None:
    ids = {payload.payload_id for payload in paper_plan.payloads}
    assert {"p1/sessions/32k/alternating/0/turn-3", "p2/chains/256k/1", "p2/concurrency/8/fixed/s07/turn-4"} <= ids


def test_half_of_a_window_starts_on_each_replica(paper_plan: Plan) -> None:
    window = unit(paper_plan, "concurrency/8/alternating")
    starts = [r.replica for r in window if r.turn == 0]
    assert (starts.count("A"), starts.count("B")) == (4, 4)
    assert {r.window for r in window} == {"concurrency/8/alternating"}


def test_window_sessions_have_namespaces_of_their_own_in_every_window(paper_plan: Plan) -> None:
    spaces = {p.namespace for p in paper_plan.payloads if p.workload == "concurrency" and p.pair == 1}
    assert len(spaces) == 24


def test_only_windows_lack_counters_of_their_own(paper_plan: Plan) -> None:
    assert {r.workload for r in paper_plan.blocks[0].requests if r.window} == {"concurrency"}


def test_fixed_and_alternating_sessions_have_independent_namespaces(paper_plan: Plan) -> None:
    kinds = {
        placement: {p.namespace for p in paper_plan.payloads if f"/{placement}/" in p.payload_id}
        for placement in ("fixed", "alternating")
    }
    assert not kinds["fixed"] & kinds["alternating"]


def test_outputs_of_different_length_start_cold(paper_plan: Plan) -> None:
    cold = [p.namespace for p in paper_plan.payloads if p.workload == "generation"]
    assert len(set(cold)) == len(cold)


def test_warmups_come_first_three_a_replica(paper_plan: Plan) -> None:
    warmups = paper_plan.blocks[0].warmups
    assert [r.seq for r in warmups] == list(range(6))
    assert paper_plan.blocks[0].requests[0].seq == 6
    assert [r.replica for r in warmups] == ["A", "B", "A", "B", "A", "B"]
    assert all(r.warmup for r in warmups)


def test_one_warmup_goes_from_the_first_replica_to_the_other(paper_plan: Plan) -> None:
    *others, source, transfer = paper_plan.blocks[0].warmups
    assert (source.replica, transfer.replica) == ("A", "B")
    assert source.payload_id == transfer.payload_id == transfer.after_any_replica[0]
    assert transfer.after_same_replica == ()
    assert not any(r.after_any_replica for r in others)


def test_reserve_values_are_asked_once_each_in_the_last_turns(reserve_plan: Plan) -> None:
    payloads = {p.payload_id: p for p in reserve_plan.payloads}
    asks = [payloads[f"p1/sessions/32k/fixed/0/turn-{turn}"].asks for turn in range(1, 7)]
    assert asks == [(0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 2), (3,), (4,)]


def test_a_reserve_question_cannot_be_answered_from_the_history(reserve_plan: Plan) -> None:
    payloads = {p.payload_id: p for p in reserve_plan.payloads}
    labels = [payloads[f"p1/concurrency/4/fixed/s00/turn-{turn}"].answer_in_history for turn in range(1, 5)]
    assert labels == [False, True, False, False]


def test_two_turns_ask_both_reserve_values_in_the_second() -> None:
    smoke = load("smoke")
    asks = [p.asks for p in schedule(smoke).payloads if p.payload_id.startswith("p1/concurrency/2/alternating/s00")]
    assert asks == [(0, 1, 2), (3, 4)]


def test_paper_labels_every_later_turn(paper_plan: Plan) -> None:
    assert all(r.answer_in_history == (r.turn > 0) for r in paper_plan.blocks[0].requests)


def test_time_scales_follow_size_and_workload(paper_plan: Plan, paper: Screening) -> None:
    scales = {r.key: r.time_scale for r in (*paper_plan.blocks[0].warmups, *paper_plan.blocks[0].requests)}
    assert paper.workloads.chains is not None
    assert scales["chains/256k/0/cold"] == paper.workloads.chains.sizes[3].time_scale
    assert scales["warmup/A/warmup-1"] == paper.workloads.warmup.time_scale


def test_an_aa_screening_plays_on_in_positions_two_and_three() -> None:
    plan = schedule(load("aa"))
    assert plan.aa
    assert [(b.pair, b.arm, b.plays) for b in plan.blocks] == [
        (1, "off", "off"),
        (1, "off", "on"),
        (2, "off", "on"),
        (2, "off", "off"),
    ]


def test_an_aa_screening_of_on_gives_its_pseudo_treatment_another_name() -> None:
    aa = load("aa")
    of_on = replace(aa, arms=(replace(aa.arms[0], name="on"),), order=("on",) * 4, baseline="on")
    assert [b.plays for b in schedule(of_on).blocks] == ["on", "pseudo-on", "pseudo-on", "on"]


def test_three_arms_are_compared_in_palindrome_halves() -> None:
    native = load("native")
    plan = schedule(native)
    assert [(b.position, b.pair, b.arm) for b in plan.blocks] == [
        (1, 1, "off"),
        (2, 1, "native"),
        (3, 1, "on"),
        (4, 2, "on"),
        (5, 2, "native"),
        (6, 2, "off"),
    ]


def test_digests_and_files_of_three_arms_count_per_half() -> None:
    native = load("native")
    counted = totals(schedule(native), native)
    per_half = counted.distinct_payloads // 2
    assert counted.distinct_payloads == 2 * per_half
    assert counted.fixture_files == 3 * counted.distinct_payloads
    assert counted.request_pairs == 2 * 2 * counted.measured_per_block


def test_a_longer_screening_repeats_the_palindrome(paper: Screening) -> None:
    plan = schedule(replace(paper, order=paper.order * 3))
    assert [b.pair for b in plan.blocks] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert len({p.payload_id for p in plan.payloads if p.workload != "warmup"}) == 6 * 156


def test_one_pair_can_be_planned_alone(paper: Screening, paper_plan: Plan) -> None:
    assert pair_requests(paper, 2) == (paper_plan.blocks[2].warmups, paper_plan.blocks[2].requests)


def test_forced_lengths_everywhere_are_checked_where_a_model_cannot_answer() -> None:
    plan = schedule(load("vllm-cpu"))
    checks = {(r.check, r.forced_tokens) for r in plan.blocks[0].requests if r.workload == "chains"}
    assert checks == {("forced", 16)}


def test_a_request_is_described_in_one_line(paper_plan: Plan) -> None:
    cross = next(r for r in paper_plan.blocks[1].requests if r.key == "chains/8k/0/cross")
    assert describe(cross, "all") == (
        "chains/8k/0/cross → B: cross, local 0, external chunks of chains/8k/0; exact answer"
    )
    assert "external 0" in describe(cross, "none")


def test_rows_and_table_of_one_block_agree(paper: Screening, paper_plan: Plan) -> None:
    rows = list(request_rows(paper_plan, paper, block=2))
    lines = list(requests_text(paper_plan, paper, block=2))
    assert len(rows) == len(lines) - 1 == 198
    assert all(str(row["key"]) in line for row, line in zip(rows, lines[1:], strict=True))


def test_a_block_that_does_not_exist_is_refused(paper: Screening, paper_plan: Plan) -> None:
    with pytest.raises(ValueError, match="blocks 1 to 4"):
        list(request_rows(paper_plan, paper, block=5))


def test_totals_refuse_a_plan_of_another_screening(paper_plan: Plan) -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        totals(paper_plan, load("quick"))
