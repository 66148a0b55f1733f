"""The sign-flip test and the interval that inverts it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from harness.analysis.coverage import bootstrap_interval, coverage_study, paired_differences
from harness.analysis.signflip import intervals, p_values, sign_flip, sign_flips, sign_vectors, too_few

X6 = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])


def test_all_sign_vectors_are_enumerated_with_the_identity_first() -> None:
    vectors = sign_vectors(6)
    assert {tuple(v) for v in vectors.tolist()} == set(product((1, -1), repeat=6))
    assert vectors[0].tolist() == [1] * 6


def test_the_plain_p_value_is_that_of_a_hand_count() -> None:
    d = np.array([0.5, 0.4, 0.3, 0.2, 0.1, -0.05])
    extreme = sum(abs(np.dot(s, d)) >= abs(d.sum()) - 1e-12 for s in product((1, -1), repeat=6))
    assert sign_flip(d).p_plain == pytest.approx(extreme / 64)


def test_six_equal_signs_give_the_smallest_level_of_six_pairs() -> None:
    assert sign_flip(np.array([1.0, 1.1, 0.9, 1.2, 0.8, 1.05])).p_plain == pytest.approx(2 / 64)


def test_limits_without_drift_are_interpolated_subset_means() -> None:
    d = np.array([0.31, -0.2, 0.44, 0.05, 0.27, 0.12])
    means = sorted(d[list(mask)].mean() for mask in map(np.flatnonzero, product((0, 1), repeat=6)) if len(mask))
    low, high, estimate = intervals(d[None, :])
    assert low[0] == pytest.approx(means[0] + 0.6 * (means[1] - means[0]))
    assert high[0] == pytest.approx(means[-1] - 0.6 * (means[-1] - means[-2]))
    assert estimate[0] == pytest.approx(d.mean())


def test_the_interval_inverts_the_test() -> None:
    d = np.random.default_rng(2).normal(0.1, 0.3, (1, 8))
    x = np.where(np.arange(8) % 2 == 0, 1.0, -1.0)
    low, high, _ = intervals(d, x)
    inside, outside = (low[0] + high[0]) / 2, high[0] + 0.05 * (high[0] - low[0])
    assert p_values(d, x, theta=inside)[0] > 0.05
    assert p_values(d, x, theta=outside)[0] <= 0.05


def test_linear_drift_changes_neither_estimate_nor_interval() -> None:
    d = np.array([0.31, -0.2, 0.44, 0.05, 0.27, 0.12])
    still, moving = sign_flip(d, X6), sign_flip(d + 3.0 * X6, X6)
    assert (moving.low, moving.high, moving.estimate) == pytest.approx((still.low, still.high, still.estimate))
    assert moving.drift == pytest.approx(still.drift + 3.0)
    assert moving.p_plain > moving.p_value


def test_drift_is_not_removed_where_all_pairs_have_one_order() -> None:
    result = sign_flip(np.arange(6.0) + 1, np.ones(6))
    assert result.drift is None
    assert "not removed" in result.method


def test_shifting_the_effect_shifts_the_interval() -> None:
    d = np.random.default_rng(5).normal(size=12)
    x = np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
    here, there = sign_flip(d, x), sign_flip(d + 0.7, x)
    assert (there.low - here.low, there.high - here.high) == pytest.approx((0.7, 0.7))


def test_identical_pairs_give_an_interval_of_no_width() -> None:
    result = sign_flip(np.full(6, 0.25), X6)
    assert (result.low, result.high) == pytest.approx((0.25, 0.25))


def test_many_pairs_use_seeded_random_flips_and_say_so() -> None:
    d = np.random.default_rng(1).normal(0, 1, 40)
    one, again, other = sign_flip(d, seed=1), sign_flip(d, seed=1), sign_flip(d, seed=2)
    assert one == again
    assert one.low != other.low
    assert "10,000 random sign vectors (seed 1)" in one.method


def test_cells_tested_together_get_what_they_get_alone() -> None:
    d = np.random.default_rng(9).normal(size=(3, 8))
    x = np.where(np.arange(8) % 2 == 0, 1.0, -1.0)
    for row, result in zip(d, sign_flips(d, x), strict=True):
        alone = sign_flip(row, x)
        assert (result.low, result.high, result.p_value) == pytest.approx((alone.low, alone.high, alone.p_value))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_below_six_pairs_there_is_no_interval_and_the_reason_is_given(n: int) -> None:
    with pytest.raises(ValueError, match="at least 6"):
        sign_flip(np.ones(n))
    assert f"{n} block pair" in too_few(n)


def test_two_pairs_can_reach_no_better_level_than_50_percent() -> None:
    assert "50 %" in too_few(2)


def test_a_percentile_bootstrap_of_so_few_pairs_covers_too_little() -> None:
    d, x = paired_differences(6, effect=0.05, drift=0.0, noise=0.04, seeds=range(2_000))
    low, high, _ = intervals(d, x)
    boot_low, boot_high = bootstrap_interval(d)
    assert np.mean((boot_low <= 0.05) & (boot_high >= 0.05)) < 0.90
    assert 0.935 < np.mean((low <= 0.05) & (high >= 0.05)) < 0.97


@pytest.mark.slow
def test_intervals_cover_as_they_say_and_power_predicts_detection() -> None:
    for line in coverage_study(seeds=600, pairs=(6, 8, 12), predict_from=24):
        assert 0.925 <= line.covered <= 0.975, line
        assert abs(line.detected - line.predicted) <= 0.05, line


def test_coverage_does_not_depend_on_the_size_of_drift() -> None:
    calm, stormy = (coverage_study(seeds=300, pairs=(8,), effects_pct=(5.0,), drift_pct=d)[0] for d in (0.0, 10.0))
    assert (calm.covered, calm.detected) == (stormy.covered, stormy.detected)
    assert stormy.covered_plain == 1.0
