"""Case COR-3 and its neighbours, as the salt control tells them apart."""

import pytest

from harness.probes.service_causes import SaltControl, cause_of, needs_control
from harness.rules.answers import judge

EXPECTED = {"x": 938639}


def said(text: str, foreign: tuple[int, ...] = ()):
    return judge(text, expected=EXPECTED, foreign=foreign)


RIGHT, WRONG, OTHER = said('{"x":938639}'), said('{"x":938624}'), said('{"x":938600}')


def cause(seen, *, reused=True, transferred=True, cold=RIGHT, warm=RIGHT):
    control = SaltControl(cold=cold, warm=warm)
    return cause_of(seen, reused=reused, transferred=transferred, control=control)


def test_a_right_answer_has_no_cause() -> None:
    assert cause(RIGHT) is None


def test_wrong_after_transfer_and_right_when_cold_is_transferred_state() -> None:
    assert cause(WRONG) == "transferred state"


def test_wrong_when_cold_too_is_the_model() -> None:
    assert cause(WRONG, cold=WRONG) == "model"


def test_wrong_without_any_reuse_is_the_model() -> None:
    assert cause_of(WRONG, reused=False, transferred=False, control=None) == "model"


def test_wrong_in_the_same_way_on_local_reuse_is_drift() -> None:
    assert cause(WRONG, warm=WRONG) == "drift candidate"


def test_wrong_on_local_reuse_of_what_was_computed_here_is_drift() -> None:
    assert cause(WRONG, transferred=False) == "drift candidate"


def test_another_error_on_local_reuse_explains_nothing() -> None:
    assert cause(WRONG, warm=OTHER) == "unexplained"


@pytest.mark.parametrize("control", [None, SaltControl(cold=None, warm=None), SaltControl(cold=RIGHT, warm=None)])
def test_without_a_whole_control_the_cause_is_not_guessed(control) -> None:
    assert cause_of(WRONG, reused=True, transferred=True, control=control) == "unexplained"


def test_a_value_of_another_namespace_is_foreign_without_a_control() -> None:
    assert cause_of(said('{"x":777001}', (777001,)), reused=True, transferred=True, control=None) == "foreign"


def test_gibberish_after_transfer_is_transferred_state() -> None:
    assert cause(said("the the the")) == "transferred state"


def test_only_wrong_reused_answers_need_a_control() -> None:
    assert needs_control(WRONG, reused=True)
    assert not needs_control(WRONG, reused=False)
    assert not needs_control(RIGHT, reused=True)
    assert not needs_control(said('{"x":777001}', (777001,)), reused=True)
