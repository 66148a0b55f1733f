"""Properties of the time model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sim import timing
from harness.sim.timing import TimeParams

tokens = st.integers(0, 300_000)
params = st.builds(
    TimeParams,
    **{name: st.floats(0, 1e-3) for name in TimeParams.__dataclass_fields__},
)


@given(params, st.integers(1, 300_000), st.data())
def test_more_recovered_tokens_never_slow_a_first_token_down_locally(p, n, data):
    few = data.draw(st.integers(0, n - 1))
    many = data.draw(st.integers(few, n - 1))
    # True wherever attending to a recovered token costs no more than to a fresh one, as in every fit.
    p = TimeParams(
        prefill_per_token=p.prefill_per_token,
        prefill_fresh_pair=p.prefill_fresh_pair,
        prefill_cached_pair=p.prefill_fresh_pair / 2,
    )
    assert timing.predict_ttft(p, n, many) <= timing.predict_ttft(p, n, few) * (1 + 1e-9)


@given(params, st.lists(st.integers(1, 9_000), min_size=1, max_size=12), tokens)
def test_any_cut_of_a_prefill_costs_the_same(p, pieces, cached):
    done, total = 0, 0.0
    for piece in pieces:
        total += timing.prefill_seconds(p, piece, cached=cached, fresh=done)
        done += piece
    assert total == pytest.approx(timing.prefill_seconds(p, done, cached=cached), rel=1e-9, abs=1e-12)


@given(params, st.integers(2, 300_000))
def test_the_connector_never_makes_a_cold_request_faster(p, n):
    assert timing.predict_ttft(p, n, connector=True) >= timing.predict_ttft(p, n)


@given(params, st.integers(2, 300_000), st.floats(1e-3, 1e3))
def test_scaling_a_prediction_is_scaling_its_parts(p, n, scale):
    whole = timing.nanoseconds(timing.predict_ttft(p, n), scale)
    parts = timing.nanoseconds(timing.frontend_seconds(p, n, connector=False), scale) + timing.nanoseconds(
        timing.prefill_seconds(p, n, cached=0), scale
    )
    assert abs(whole - parts) <= max(2, whole * 1e-12)
