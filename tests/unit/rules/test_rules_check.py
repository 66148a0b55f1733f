"""Rules of one single-request window, each shown broken and whole."""

import pytest
from rule_cases import (
    BS,
    NATIVE,
    NOTHING,
    OFF,
    ON,
    counted,
    cross,
    deltas,
    failed,
    local,
    payload,
    pool,
    request,
    seen,
    window,
)

from harness.model.counting import Counter, Reset
from harness.rules.check import check_window
from harness.rules.outcomes import decisive
from harness.rules.treatment import zero_exposure

COLD, LOCAL, CROSS = (0, 0, 0, 0), (2496, 2496, 0, 0), (0, 0, 2304, 2304)


def rules(found):
    return [finding.rule for finding in found]


@pytest.mark.parametrize(
    ("req", "hits", "external", "expected", "pool_counts"),
    [
        (request(), 0, 0, COLD, pool()),
        (local(), 2496, 0, LOCAL, pool(hit=2304)),
        (cross(), 0, 2304, CROSS, pool(hit=2304, loaded=9)),
    ],
)
def test_the_captured_steps_break_no_rule(req, hits, external, expected, pool_counts):
    assert check_window(window(req, counted(2513, hits, external), expected, pool_counts=pool_counts)) == []


def test_a_cold_request_with_local_hits_is_a_leak_with_counts_and_words():
    found = check_window(window(request(), counted(2513, 1024), COLD))
    assert rules(found) == ["leak.local"]
    assert "cold request chains/8k/0/cold hit 1,024 local tokens on A" in found[0].detail
    assert found[0].data["hits"] == 1024


def test_one_or_two_blocks_on_every_cold_request_point_to_the_template():
    found = check_window(window(request(), counted(2513, BS), COLD))
    assert "template" in found[0].detail


def test_a_wholly_warm_cold_request_points_to_a_replica_that_was_not_restarted():
    found = check_window(window(request(), counted(2513, 2496), COLD))
    assert "not restarted" in found[0].detail


def test_off_with_external_hits_is_a_leak_that_names_the_connector():
    found = check_window(window(cross(), counted(2513, 0, 2304), COLD, arm=OFF))
    assert rules(found)[0] == "leak.external"
    assert "connector" in found[0].detail


def test_native_reaching_another_replica_is_a_leak():
    assert "leak.external" in rules(check_window(window(cross(), counted(2513, 0, 2304), COLD, arm=NATIVE)))


def test_more_in_all_than_can_be_shared_is_a_leak_even_within_both_ranges():
    expected = (992, 1024, 256, 288)
    counters = counted(1600, 1024, 288)
    assert "leak.external" in rules(check_window(window(local(), counters, expected)))


def test_the_pool_finding_tokens_for_a_cold_request_is_a_leak():
    assert "leak.pool_lookup" in rules(check_window(window(request(), counted(2513), COLD, pool_counts=pool(hit=256))))


def test_a_failed_cold_request_that_hit_is_still_a_leak():
    found = check_window(window(request(), counted(2513, 64), COLD, observation=failed()))
    assert rules(found)[0] == "leak.local"


def test_a_failed_warm_request_is_judged_by_no_hit_rule():
    # captured: 16 local and 7,920 external hits counted, nothing served, 0 prompt tokens
    counters = deltas(local_queries=8053, local_hits=16, external_queries=8037, external_hits=7920, prompt_tokens=0)
    found = check_window(window(cross(), counters, CROSS, observation=failed(), pool_counts=pool()))
    assert found == []


def test_cor_2_a_cross_reader_served_by_its_own_cache_was_not_treated():
    found = check_window(window(cross(), counted(2513, 1024), CROSS))
    assert "treatment.external_short" in rules(found)


def test_cor_2_a_block_without_any_exposure_is_void_not_without_effect():
    found = zero_exposure("on", [(2304, 0), (2304, 0), (0, 0)], block=2)
    assert rules(found) == ["treatment.zero_exposure"]
    assert found[0].severity == "void"


def test_exposure_anywhere_or_nowhere_expected_is_no_finding():
    assert zero_exposure("on", [(2304, 0), (2304, 2304)]) == []
    assert zero_exposure("on", [(0, 0)]) == []


def test_a_short_local_reuse_is_a_treatment_not_applied():
    assert "treatment.local_short" in rules(check_window(window(local(), counted(2513, 2464), LOCAL)))


def test_a_tier_that_gives_one_chunk_less_is_short():
    counters = counted(2513, 0, 2048)
    found = check_window(window(cross(), counters, CROSS, pool_counts=pool(hit=2048, loaded=8)))
    assert rules(found) == ["treatment.external_short"]


def test_external_hits_without_loaded_chunks_are_not_real():
    found = check_window(window(cross(), counted(2513, 0, 2304), CROSS, pool_counts=pool(hit=2304, loaded=0)))
    assert rules(found) == ["treatment.not_loaded"]


def test_external_hits_beside_a_pool_that_shows_no_such_counter_are_not_proven():
    shown = deltas(pool_hit_tokens=2304)
    assert rules(check_window(window(cross(), counted(2513, 0, 2304), CROSS, pool_counts=shown))) == [
        "treatment.not_loaded"
    ]


@pytest.mark.parametrize(
    ("external_queries", "meaning", "broken"),
    [
        (1000, "n", False),
        (400, "n_minus_local", False),
        (2000, "n", True),
        (2000, "n_minus_local", True),
        (1000, "n_minus_local", True),
    ],
)
def test_met_3_external_queries_mean_what_the_engine_version_says(external_queries, meaning, broken):
    req = local()
    counters = counted(1000, 600, 200, external_queries=external_queries)
    found = check_window(window(req, counters, (600, 600, 200, 200), external_queries=meaning, block_size=8))
    assert ("invariant.external_queries" in rules(found)) is broken


def test_met_3_local_queries_beyond_the_prompt_are_foreign_traffic():
    found = check_window(window(request(), counted(2513, local_queries=2600), COLD))
    assert rules(found) == ["invariant.queries"]


def test_counters_below_the_prompt_have_not_settled():
    found = check_window(window(request(), counted(2513, local_queries=0, computed_tokens=NOTHING), COLD))
    assert rules(found) == ["counter.lag"]


def test_a_prompt_counter_that_disagrees_with_usage_is_found():
    found = check_window(
        window(request(), counted(2513, prompt_tokens=2600), COLD, observation=seen(2513), body=payload(2513))
    )
    assert rules(found) == ["invariant.prompt_tokens"]


def test_tok_1_one_token_more_than_planned_voids():
    found = check_window(window(request(), counted(2514), COLD, body=payload(2513)))
    assert rules(found) == ["invariant.planned_tokens"]
    assert "(+1)" in found[0].detail


def test_local_hits_off_the_block_grid_are_found():
    assert "invariant.local_range" in rules(check_window(window(local(), counted(2513, 2490), (2490, 2490, 0, 0))))


def test_hybrid_local_hits_need_not_be_aligned():
    assert check_window(window(local(), counted(2513, 2490), (0, 2500, 0, 0), hybrid=True)) == []


def test_sources_that_do_not_add_up_are_found():
    assert rules(check_window(window(request(), counted(2513, computed_tokens=2000), COLD))) == ["invariant.sources"]


def test_usage_that_disagrees_with_the_counters_is_found():
    found = check_window(window(local(), counted(2513, 2496), LOCAL, observation=seen(2513, 2000)))
    assert rules(found) == ["invariant.cached_tokens"]


def test_a_server_may_leave_cached_tokens_out_only_where_they_are_zero():
    assert check_window(window(request(), counted(2513), COLD, observation=seen(2513, None))) == []
    found = check_window(window(local(), counted(2513, 2496), LOCAL, observation=seen(2513, None)))
    assert rules(found) == ["invariant.cached_tokens"]


def test_a_preemption_anywhere_voids():
    assert rules(check_window(window(request(), counted(2513, preemptions=1), COLD))) == ["invariant.preemption"]


def test_external_hits_that_do_not_follow_from_the_lookup_are_found():
    found = check_window(window(cross(), counted(2513, 0, 2304), CROSS, pool_counts=pool(hit=2560, loaded=9)))
    assert rules(found) == ["invariant.chunk_arithmetic"]


def test_work_on_a_replica_that_was_not_addressed_is_found():
    busy = deltas(local_queries=100, prompt_tokens=100, local_hits=0)
    assert (
        rules(check_window(window(request(), counted(2513), COLD, arm=OFF, other=busy)))[0] == "invariant.idle_replica"
    )


def test_met_2_a_missing_external_series_voids_on_and_is_null_in_off():
    counters = counted(2513, external_queries=NOTHING, external_hits=NOTHING)
    idle = deltas(local_queries=0, local_hits=0, prompt_tokens=0)
    assert check_window(window(request(), counters, COLD, arm=OFF, other=idle)) == []
    on = rules(check_window(window(request(), counters, COLD, arm=ON, other=idle)))
    assert on == ["counter.missing"] * 4


def test_a_counter_that_went_backwards_is_found_by_name():
    counters = counted(2513, generated_tokens=Reset(before=50, after=3))
    found = check_window(window(request(), counters, COLD))
    assert rules(found) == ["counter.reset"]
    assert "generated_tokens of A" in found[0].detail


@pytest.mark.parametrize(
    ("counter", "rule_id"),
    [
        (Counter.POOL_EVICTED_CHUNKS, "pool.eviction"),
        (Counter.POOL_ALLOCATION_FAILURES, "pool.allocation_failure"),
        (Counter.POOL_DROPPED_EVENTS, "pool.dropped_events"),
    ],
)
def test_whatever_the_pool_lost_is_named(counter, rule_id):
    lost = pool(**{counter.value: 3})
    assert rules(check_window(window(request(), counted(2513), COLD, pool_counts=lost))) == [rule_id]


def test_a_leak_decides_before_anything_else():
    found = check_window(window(request(), counted(2513, 64, local_queries=2600), COLD, pool_counts=pool()))
    assert decisive(found).rule == "leak.local"
