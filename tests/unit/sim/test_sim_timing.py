"""The time model: pure formulas."""

from dataclasses import fields

import pytest

from harness.sim import timing
from harness.sim.timing import TimeParams

PARAMS = TimeParams()


def test_there_are_at_most_ten_physical_parameters():
    assert len(fields(TimeParams)) <= 10


def test_cutting_a_prefill_into_chunks_does_not_change_its_total():
    whole = timing.prefill_seconds(PARAMS, 20_000, cached=5_000)
    parts = [(8_192, 0), (8_192, 8_192), (3_616, 16_384)]
    pieces = sum(timing.prefill_seconds(PARAMS, new, cached=5_000, fresh=done) for new, done in parts)
    assert pieces == pytest.approx(whole, rel=1e-12)


def test_ttft_is_the_sum_of_front_end_transfer_and_prefill():
    p = TimeParams(
        first_token_constant=1.0,
        host_per_prompt_token=0.1,
        connector_per_token=0.01,
        prefill_per_token=2.0,
        prefill_fresh_pair=0.0,
        prefill_cached_pair=0.5,
        transfer_floor=3.0,
        transfer_per_token=0.0,
    )
    # 10 tokens, 6 recovered: front 1 + 10 * 0.11, load 3, prefill 4 * 2 + 4 * 6 * 0.5
    assert timing.predict_ttft(p, 10, 2, 4, connector=True) == pytest.approx(2.1 + 3.0 + 20.0)


def test_nothing_loaded_costs_no_transfer():
    assert timing.transfer_seconds(PARAMS, 0) == 0.0


def test_a_transfer_takes_the_larger_of_floor_and_copy():
    p = TimeParams(transfer_floor=1.0, transfer_per_token=0.1)
    assert timing.transfer_seconds(p, 5) == 1.0
    assert timing.transfer_seconds(p, 50) == 5.0


def test_a_step_that_prefills_reads_the_weights_only_once():
    p = TimeParams(decode_step=1.0, prefill_per_token=0.1, decode_per_context_token=0.0)
    assert timing.decode_seconds(p, [5]) == 1.0
    assert timing.decode_seconds(p, [5], prefilled=4) == pytest.approx(0.6)
    assert timing.decode_seconds(p, [5], prefilled=400) == 0.0


def test_batch_members_share_the_weights_but_not_their_context():
    p = TimeParams(decode_step=1.0, decode_per_context_token=0.01)
    assert timing.decode_seconds(p, [10, 20]) == pytest.approx(1.3)


def test_no_member_decodes_in_no_time():
    assert timing.decode_seconds(PARAMS, []) == 0.0


def test_decode_grows_with_the_context_it_has_produced():
    p = TimeParams(decode_step=0.0, decode_per_context_token=1.0)
    assert timing.predict_decode(p, 10, 3) == 11 + 12


def test_durations_become_whole_nanoseconds_under_a_scale():
    assert timing.nanoseconds(1.5, 0.1) == 150_000_000
