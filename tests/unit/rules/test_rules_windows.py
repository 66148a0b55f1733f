"""Rules of concurrency windows: sums only, hits per request from usage."""

from rule_cases import NOTHING, ON, counted, deltas, engine, payload, pool, request, seen

from harness.model.counting import Expectation, WindowCounters
from harness.rules.windows import ConcurrencyWindow, WindowMember, check_concurrency

FIRST, SECOND = (
    Expectation(local_min=0, local_max=0, external_min=0, external_max=0),
    Expectation(local_min=0, local_max=0, external_min=768, external_max=768),
)


def member(key, replica, n, cached, expected):
    req = request(key=key, replica=replica, window="w", role="turn")
    return WindowMember(request=req, payload=payload(n), observation=seen(n, cached), expectation=expected)


def window(members, a, b, pool_counts=None, kind="vllm"):
    return ConcurrencyWindow(
        key="w",
        members=tuple(members),
        counters=WindowCounters(deltas={"A": a, "B": b, "pool": pool_counts or pool(hit=768, loaded=3)}),
        arm=ON,
        engine=engine(kind=kind),
        replicas=("A", "B"),
        pools=("pool",),
        block=1,
    )


def rules(*args, **kwargs):
    return [found.rule for found in check_concurrency(window(*args, **kwargs))]


COLD, WARM = member("w/s0/1", "A", 1000, 0, FIRST), member("w/s0/2", "B", 1200, 768, SECOND)


def test_a_window_whose_sums_agree_breaks_no_rule():
    assert rules([COLD, WARM], counted(1000), counted(1200, 0, 768)) == []


def test_a_cold_turn_with_cached_tokens_is_a_leak_named_by_its_key():
    warm_cold = member("w/s0/1", "A", 1000, 32, FIRST)
    found = check_concurrency(window([warm_cold, WARM], counted(1000, 32), counted(1200, 0, 768)))
    assert found[0].rule == "leak.external"
    assert found[0].subject == "w/s0/1"


def test_more_summed_hits_than_possible_are_a_leak():
    assert "leak.local" in rules([COLD, WARM], counted(1000, 32), counted(1200, 0, 768))


def test_external_hits_that_the_pool_did_not_find_are_a_leak_although_overtaken_stores_leave_room_for_them():
    some = member("w/s0/2", "B", 1200, 256, SECOND)
    found = rules([COLD, some], counted(1000), counted(1200, 0, 256), pool())
    assert found == ["leak.external", "window.external_short"]


def test_queries_beyond_what_was_sent_are_foreign_traffic():
    assert rules([COLD, WARM], counted(1000, local_queries=1400), counted(1200, 0, 768)) == ["invariant.queries"]


def test_queries_below_what_was_sent_have_not_settled():
    assert rules([COLD, WARM], counted(1000, local_queries=900), counted(1200, 0, 768)) == ["counter.lag"]


def test_responses_and_counters_must_agree_about_cached_tokens():
    less = member("w/s0/2", "B", 1200, 512, SECOND)
    assert rules([COLD, less], counted(1000), counted(1200, 0, 768)) == ["invariant.cached_tokens"]


def test_no_transfer_in_one_window_is_a_warning_for_stores_may_be_overtaken():
    none = member("w/s0/2", "B", 1200, 0, SECOND)
    assert rules([COLD, none], counted(1000), counted(1200), pool()) == ["window.external_short"]


def test_a_store_that_was_overtaken_is_a_warning_only():
    some = member("w/s0/2", "B", 1200, 512, SECOND)
    found = check_concurrency(window([COLD, some], counted(1000), counted(1200, 0, 512)))
    assert [(f.rule, f.severity) for f in found] == [("window.external_short", "warning")]


def test_a_local_shortfall_is_found_per_request():
    own = Expectation(local_min=960, local_max=960, external_min=0, external_max=0)
    assert rules(
        [COLD, member("w/s0/2", "A", 1200, 0, own)],
        counted(2200),
        deltas(local_queries=0, local_hits=0, prompt_tokens=0, external_queries=0, external_hits=0),
    ) == ["treatment.local_short"]


def test_a_preemption_voids_the_window_before_its_sums_are_compared():
    assert rules([COLD, WARM], counted(1000, preemptions=1), counted(1200, 0, 768)) == ["invariant.preemption"]


def test_missing_counters_are_named_per_replica():
    gone = counted(1200, 0, 768, local_hits=NOTHING)
    assert "counter.missing" in rules([COLD, WARM], counted(1000), gone)


def test_an_evicting_pool_voids_the_window():
    lost = pool(hit=768, loaded=3, pool_evicted_chunks=4)
    assert rules([COLD, WARM], counted(1000), counted(1200, 0, 768), lost) == ["pool.eviction"]


def test_a_prompt_of_another_length_than_planned_is_found():
    odd = WindowMember(request=COLD.request, payload=payload(999), observation=COLD.observation, expectation=FIRST)
    assert rules([odd, WARM], counted(1000), counted(1200, 0, 768)) == ["invariant.planned_tokens"]


def test_cor_2_tokens_that_the_simulated_pool_found_and_no_engine_used_mean_that_the_arm_was_not_applied():
    some = member("w/s0/2", "B", 1200, 512, SECOND)
    counters = (counted(1000), counted(1200, 0, 512), pool(hit=768, loaded=2))
    found = check_concurrency(window([COLD, some], *counters, kind="sim"))
    assert [(f.rule, f.severity) for f in found] == [
        ("treatment.external_short", "void"),
        ("window.external_short", "warning"),
    ]
    assert rules([COLD, WARM], counted(1000), counted(1200, 0, 768), kind="sim") == []


def test_a_simulated_store_that_was_overtaken_is_not_in_what_the_pool_found():
    some = member("w/s0/2", "B", 1200, 512, SECOND)
    counters = (counted(1000), counted(1200, 0, 512), pool(hit=512, loaded=2))
    assert rules([COLD, some], *counters, kind="sim") == ["window.external_short"]
