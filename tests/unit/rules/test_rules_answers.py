"""Verdicts on answers: the known value decides, never text equality."""

import pytest
from rule_cases import failed, local, request, seen

from harness.model.observation import Stamps
from harness.rules.answers import explain_wrong, judge, judge_length, read_items, read_values
from harness.rules.row_faults import row_findings

EXPECTED = {"alpha": 938639, "beta": 120007}
FOREIGN = {555123, 938639, 777777}


def verdict(text, **values):
    return judge(text, expected=EXPECTED, foreign=FOREIGN, **values).verdict


@pytest.mark.parametrize(
    "text",
    [
        '{"alpha": 938639, "beta": 120007}',
        '{"beta":120007,"alpha":"938639"}',
        'Sure:\n```json\n{"alpha": 938639, "beta": 120007, "note": 1}\n```',
        'not {this} but {"alpha": 938639, "beta": 120007}',
    ],
)
def test_every_form_of_the_right_values_is_correct(text):
    assert verdict(text) == "correct"


@pytest.mark.parametrize(
    "text", ['{"alpha": 938624, "beta": 120007}', '{"alpha": 938639}', '{"alpha": 120007, "beta": 938639}']
)
def test_another_a_missing_or_a_swapped_value_is_wrong(text):
    assert verdict(text) == "wrong"


@pytest.mark.parametrize("text", ["", "938639", "{alpha: 938639}", "[1, 2]", "\x00\ufffd", '{"alpha": 93863'])
def test_an_answer_without_a_json_object_is_unparsable(text):
    assert verdict(text) == "unparsable"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[938639,120007]", "correct"),
        ('Here: ["938639", 120007].', "correct"),
        ("[120007,938639]", "wrong"),
        ("[938639,120008]", "wrong"),
        ("[938639]", "unparsable"),
        ("[938639,120007,1]", "unparsable"),
        ('{"alpha":938639,"beta":120007}', "unparsable"),
        ("[938639,777777]", "foreign"),
    ],
)
def test_an_array_is_judged_by_the_order_asked(text, meant):
    assert verdict(text, form="array") == meant


def test_nulls_of_an_array_are_no_values():
    assert read_items("[938639,null]", ("alpha", "beta")) == {"alpha": 938639}


def test_cor_1_a_value_of_another_session_is_foreign_not_wrong():
    found = judge('{"alpha": 555123, "beta": 120007}', expected=EXPECTED, foreign=FOREIGN)
    assert found.verdict == "foreign"
    assert found.foreign == (555123,)


def test_cor_1_a_foreign_value_in_gibberish_is_foreign_not_unparsable():
    assert verdict("zz 777777 zz") == "foreign"


def test_cor_1_a_value_that_both_namespaces_planted_is_its_own():
    assert verdict('{"alpha": 938639, "beta": 120007}') == "correct"
    assert verdict('{"alpha": 777777, "beta": 120007}', own=[777777]) == "wrong"


def test_a_foreign_value_inside_a_longer_number_is_not_seen():
    assert verdict('{"alpha": 5551239, "beta": 120007}') == "wrong"


@pytest.mark.parametrize(
    ("reused", "control", "meaning"),
    [
        ('{"alpha": 42}', None, "correct"),
        ('{"alpha": 41}', '{"alpha": 41}', "drift"),
        ('{"alpha": 41}', '{"alpha": 42}', "transfer_suspect"),
        ('{"alpha": 41}', '{"alpha": 40}', "wrong"),
        ('{"alpha": 41}', None, "wrong"),
    ],
)
def test_cor_3_a_local_warm_control_tells_drift_from_a_transfer_fault(reused, control, meaning):
    want = {"alpha": 42}
    on = judge(reused, expected=want, foreign=())
    warm = judge(control, expected=want, foreign=()) if control else None
    assert explain_wrong(on, warm) == meaning


@pytest.mark.parametrize(
    ("tokens", "wanted"), [(512, "forced_ok"), (511, "forced_wrong_length"), (513, "forced_wrong_length")]
)
def test_a_forced_length_is_exact(tokens, wanted):
    assert judge_length(tokens, 512).verdict == wanted


def test_booleans_and_fractions_are_no_values():
    assert read_values('{"a": true, "b": 1.5, "c": 3}') == {"c": 3}


def test_deeply_nested_brackets_are_unparsable_not_a_crash():
    assert read_values('{"a":' * 100_000) is None


def rules(req, observation, judgement):
    return [found.rule for found in row_findings(req, observation, judgement)]


@pytest.mark.parametrize(
    ("text", "rule_id"),
    [('{"alpha": 1}', "row.wrong"), ("what?", "row.unparsable"), ('{"alpha": 555123}', "answer.foreign")],
)
def test_each_verdict_names_its_rule(text, rule_id):
    judgement = judge(text, expected=EXPECTED, foreign=FOREIGN)
    assert rules(request(), seen(text=text), judgement) == [rule_id]


def test_a_failed_row_has_one_finding_with_its_kind():
    found = row_findings(local(), failed(), None)
    assert [f.rule for f in found] == ["row.failed"]
    assert "empty_success" in found[0].detail


def test_res_3_a_completed_stream_without_content_is_named():
    observation = seen(text="", stamps=Stamps(start_ns=0))
    assert rules(request(check="none"), observation, None) == ["row.no_content"]


def test_a_missed_deadline_of_the_simulator_is_named():
    assert rules(request(), seen(sim_missed=2), None) == ["row.sim_missed"]


def test_a_row_that_the_client_limited_says_by_what():
    found = row_findings(request(), seen(), None, limited="late send: 30.0 ms")
    assert [(f.rule, f.data["threshold"]) for f in found] == [("row.client_limited", "late send: 30.0 ms")]
