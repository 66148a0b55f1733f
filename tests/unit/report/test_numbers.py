import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.numbers import axis_seconds, count, milliseconds, percent, plural, rate, seconds, signed


@pytest.mark.parametrize("write", [seconds, milliseconds, percent, count, rate, signed])
def test_absent_is_a_dash_and_never_zero(write):
    assert write(None) == "–"


def test_seconds_have_the_papers_three_decimals():
    assert [seconds(value) for value in (0.0, 1.157, 92.1082, 1234.5)] == ["0.000", "1.157", "92.108", "1,234.500"]


def test_seconds_below_ten_milliseconds_keep_their_digits():
    assert seconds(0.0004) == "0.000400"


def test_milliseconds_are_scaled_by_the_rows_time_scale():
    assert milliseconds(5_000_000, scale=0.1) == "50.000"


def test_percent_carries_a_real_minus_sign():
    assert percent(-44.614) == "−44.61\u202f%"


@given(st.floats(-0.0049, 0.0049))
def test_what_rounds_to_zero_has_no_sign(value):
    assert signed(value) == "0.00"


def test_axis_labels_change_their_unit():
    assert [axis_seconds(value) for value in (1e-5, 0.01, 0.1, 1, 100)] == ["10 µs", "10 ms", "100 ms", "1 s", "100 s"]


def test_plural_agrees_with_its_number():
    assert (plural(1, "row"), plural(1234, "row"), plural(2, "entry", "entries")) == (
        "1 row",
        "1,234 rows",
        "2 entries",
    )
