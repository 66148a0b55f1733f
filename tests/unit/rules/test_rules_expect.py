"""Expected hits of a request, from token counts alone (interfaces.md §6)."""

import pytest
from rule_cases import cross, engine, local, payload, request

from harness.model.counting import Expectation
from harness.rules.expect import expectation, external_hits, new_chunks, reuse_share, total_range


def expect(req, body, reach, **engine_values):
    found = expectation(req, payload=body, engine=engine(**engine_values), reach=reach)
    return (found.local_min, found.local_max), (found.external_min, found.external_max)


@pytest.mark.parametrize("reach", ["none", "replica", "all"])
def test_a_cold_request_expects_nothing_in_any_arm(reach):
    assert expect(request(), payload(), reach) == ((0, 0), (0, 0))


def test_the_captured_chain_is_expected_exactly():
    # 2,513 tokens, block 32, chunk 256: local 2,496; cross 2,304; receiver-local 2,496
    body = payload(2513)
    receiver = cross(after_same_replica=("p",))
    assert expect(local(), body, "all") == ((2496, 2496), (0, 0))
    assert expect(cross(), body, "all") == ((0, 0), (2304, 2304))
    assert expect(receiver, body, "all") == ((2496, 2496), (0, 0))


def test_off_expects_no_external_hit_on_the_cross_step():
    assert expect(cross(), payload(), "none") == ((0, 0), (0, 0))


def test_native_offload_does_not_reach_another_replica():
    assert expect(cross(), payload(), "replica") == ((0, 0), (0, 0))


def test_native_offload_reaches_what_its_own_replica_was_sent():
    body = payload(700, lcp={"p": 700}, lcp_with_answer={"p": 700})
    assert expect(local(), body, "replica") == ((672, 672), (0, 0))


def test_native_offload_may_add_its_last_block_less_the_last_token():
    # n is a multiple of the block: the prefix cache stops one block early, an offload tier of blocks holds that one too
    body = payload(4000, lcp={"p": 4000}, lcp_with_answer={"p": 4000})
    assert expect(local(), body, "replica") == ((3968, 3968), (0, 31))


def test_the_last_token_is_always_computed():
    # n is a multiple of block and chunk: local stops one block early, external one token early
    body = payload(2560)
    assert expect(local(), body, "none")[0] == (2528, 2528)
    assert expect(cross(), body, "all")[1] == (2559, 2559)


def test_an_answer_that_fills_a_block_widens_the_upper_end_only():
    body = payload(1500, lcp={"p": 1000}, lcp_with_answer={"p": 1030})
    assert expect(local(), body, "none")[0] == (992, 1024)


def test_a_pool_that_keeps_no_output_cannot_have_given_any():
    # 1,000 tokens of the earlier prompt are shared, 1,030 with its answer: the fifth chunk of 256 would hold output
    body = payload(1500, lcp={"p": 1000}, lcp_with_answer={"p": 1030})
    assert expect(cross(), body, "all")[1] == (768, 1024)
    assert expect(cross(), body, "all", kind="sim")[1] == (768, 768)
    storing = {"cache_settings": {"store_generated": True}}
    assert expect(cross(), body, "all", kind="sim", options=storing)[1] == (768, 1024)


def test_an_alternating_turn_expects_the_tier_beyond_its_own_blocks():
    # turn 3 on A: A saw turn 1 (1,000 tokens), B saw turn 2 (1,300 tokens)
    body = payload(1600, lcp={"t1": 1000, "t2": 1300}, lcp_with_answer={"t1": 1000, "t2": 1300})
    turn = request(role="turn", after_same_replica=("t1",), after_any_replica=("t1", "t2"))
    assert expect(turn, body, "all") == ((992, 992), (1280 - 992, 1280 - 992))


def test_a_hybrid_engine_need_not_hit_a_shorter_shared_prefix():
    body = payload(1500, lcp={"p": 1000}, lcp_with_answer={"p": 1000})
    assert expect(local(), body, "none", hybrid=True)[0] == (0, 992)


def test_a_hybrid_engine_must_hit_the_very_same_prompt():
    assert expect(local(), payload(2513), "none", hybrid=True)[0] == (2496, 2496)


def test_an_unknown_earlier_payload_is_an_error_not_a_zero():
    with pytest.raises(KeyError):
        expect(local(), payload(lcp={}, lcp_with_answer={}), "none")


@pytest.mark.parametrize(
    ("pool", "hits", "n", "wanted"),
    [(2304, 0, 2513, 2304), (2304, 2496, 2513, 0), (2560, 0, 2560, 2559), (0, 0, 10, 0)],
)
def test_external_hits_follow_from_the_pools_lookup(pool, hits, n, wanted):
    assert external_hits(pool, hits, n) == wanted


def test_the_total_is_bounded_more_tightly_than_the_two_ranges():
    expected = Expectation(local_min=992, local_max=1024, external_min=256, external_max=288)
    assert total_range(expected) == (1280, 1280)


def test_new_chunks_are_those_no_earlier_request_stored():
    body = payload(1600, lcp={"t1": 1000}, lcp_with_answer={"t1": 1030})
    turn = request(role="turn", after_any_replica=("t1",))
    assert new_chunks(turn, payload=body, engine=engine(), reach="all") == 6 - 4
    assert new_chunks(turn, payload=body, engine=engine(), reach="none") == 0


@pytest.mark.parametrize("external_queries", [1000, 400])
def test_met_3_reuse_share_does_not_depend_on_what_external_queries_mean(external_queries):
    assert reuse_share(600, 200, 1000) == 0.8, external_queries
