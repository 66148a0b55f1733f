from dataclasses import replace

import pytest

from harness import config
from harness.model.errors import ConfigError
from harness.model.planned import PlannedRequest
from harness.model.screening import Screening, Size
from harness.probes.service_plan import (
    FRESH,
    FULL,
    SHORT,
    SIMULATED_SCALE,
    SMALLEST,
    long_sizes,
    service_plan,
    totals,
)


@pytest.fixture(scope="module")
def quick() -> Screening:
    return config.load("quick")


def of_unit(screening: Screening, name: str, composition=FULL) -> list[PlannedRequest]:
    return [request for request in service_plan(screening, composition).requests if request.unit == name]


def test_the_full_set_has_the_papers_totals(quick: Screening) -> None:
    plan = service_plan(quick, FULL)
    parts = [request.workload for request in plan.requests]
    assert (parts.count("chains"), parts.count("sessions"), len(plan.requests), len(plan.warmups)) == (207, 57, 264, 12)


@pytest.mark.parametrize("composition", [FULL, SHORT, SMALLEST])
def test_totals_are_what_the_plan_holds(quick: Screening, composition) -> None:
    plan, said = service_plan(quick, composition), totals(composition)
    assert (len(plan.requests), len(plan.warmups)) == (said["requests"], said["warmups"])


def test_every_chain_carries_its_text_in_both_directions(quick: Screening) -> None:
    for index in range(2):
        chain = [r for r in service_plan(quick, SHORT).requests if r.unit.endswith(f"/{index}") and r.role == "cross"]
        assert {request.replica for request in chain} == {"A", "B"}


def test_the_salt_control_of_a_chain_is_cold_after_its_text_was_reused(quick: Screening) -> None:
    steps = {request.step: request for request in of_unit(quick, "chains/1k/0")}
    assert steps["cross"].after_any_replica
    assert not steps["cross"].after_same_replica
    assert steps["fresh-cold"].after_any_replica == ()
    assert steps["fresh-cold"].payload_id == steps["cold"].payload_id + FRESH


def test_fresh_variants_are_not_built_a_second_time(quick: Screening) -> None:
    assert not [planned for planned in service_plan(quick, FULL).plan.payloads if FRESH in planned.payload_id]


def test_sessions_of_a_group_are_interleaved_and_move_with_every_turn(quick: Screening) -> None:
    turns = of_unit(quick, "sessions/1k/0", SHORT)
    assert [(request.session, request.replica) for request in turns] == [
        (0, "A"), (1, "B"), (0, "B"), (1, "A"), (0, "A"), (1, "B"), (0, "B"),
    ]  # fmt: skip


def test_the_closing_request_is_a_body_that_the_other_replica_answered(quick: Screening) -> None:
    *_, last_turn, closing = [r for r in of_unit(quick, "sessions/1k/0") if r.session == 0]
    assert (closing.payload_id, closing.replica != last_turn.replica) == (last_turn.payload_id, True)


def test_late_turns_ask_what_no_history_holds(quick: Screening) -> None:
    last = [r for r in of_unit(quick, "sessions/1k/0") if r.step in ("s0/turn-5", "s0/turn-6")]
    assert [request.answer_in_history for request in last] == [False, False]


def test_a_size_that_is_a_multiple_of_the_chunk_is_shortened(quick: Screening) -> None:
    chains = replace(quick.workloads.chains, sizes=(Size(label="2k", tokens=2048),))
    screening = replace(quick, workloads=replace(quick.workloads, chains=chains, sessions=None))
    first = service_plan(screening, SHORT).plan.payloads[0]
    assert first.nominal_tokens % 256
    assert 2000 < first.nominal_tokens < 2048


def test_sizes_within_a_chunk_are_left_out(quick: Screening) -> None:
    engine = replace(quick.engine, chunk_size=1568)
    assert [size.tokens for size in long_sizes(replace(quick, engine=engine))] == [2000, 4000, 8000]


def test_a_declaration_without_a_size_beyond_the_chunk_is_refused(quick: Screening) -> None:
    with pytest.raises(ConfigError, match="longer than a chunk of 9000"):
        service_plan(replace(quick, engine=replace(quick.engine, chunk_size=9000)), SHORT)


def test_simulated_time_is_compressed(quick: Screening) -> None:
    plan = service_plan(quick, SHORT)
    assert {request.time_scale for request in (*plan.warmups, *plan.requests)} == {SIMULATED_SCALE}


def test_the_plan_is_a_pure_function_of_the_declaration(quick: Screening) -> None:
    assert service_plan(quick, FULL) == service_plan(quick, FULL)


def test_small_models_are_asked_one_value_at_a_time(quick: Screening) -> None:
    prose = replace(quick, checks=replace(quick.checks, style="prose"))
    asks = {planned.asks for planned in service_plan(prose, FULL).plan.payloads if planned.workload == "chains"}
    assert asks == {(0,), (1,), (2,)}
