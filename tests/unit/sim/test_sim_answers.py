"""Answers are read from recovered content."""

import json
from pathlib import Path

import pytest

from harness.sim import answers, generation
from harness.sim.faults import ActiveFaults, FaultSpec
from harness.sim.generation import Planner, Sampling, Source
from harness.sim.settings import ReplicaSettings
from harness.sim.tokens import Tokenizer

SIM = Path(__file__).parents[3] / "fixtures" / "tokenizers" / "sim"
TEXT = (
    b"x\n@value alpha_port = 938639\ny\n@value beta = 000123\n@value alpha_port = 111111\n"
    b"@ask alpha_port, beta, gone<|im_end|>"
)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(SIM)


def plan(tokenizer, text=TEXT, *, reused=False, connector=False, faults=(), sampling=None, **settings):
    source = Source(
        text=text, reused=reused, connector=connector, faults=ActiveFaults([FaultSpec(kind=k) for k in faults])
    )
    return generation.plan(tokenizer, ReplicaSettings(**settings), sampling or Sampling(max_tokens=64), source)


def test_the_first_assignment_wins_and_a_missing_name_is_null():
    assert answers.answer(TEXT) == '{"alpha_port":938639,"beta":123,"gone":null}'


def test_the_last_question_counts():
    assert answers.asked_names(b"@ask a\n@ask b, c\n") == (["b", "c"], False)


def test_a_question_ends_with_its_line():
    assert answers.asked_names(b"@ask a, b\nmore, words") == (["a", "b"], False)


def test_a_list_is_answered_as_an_array_in_the_order_asked():
    assert answers.answer(TEXT.replace(b"@ask", b"@list")) == "[938639,123,null]"


def test_the_last_of_both_kinds_of_question_decides_the_form():
    assert answers.answer(TEXT + b"@list beta\n") == "[123]"
    assert answers.answer(TEXT + b"@list beta\n@ask beta\n") == '{"beta":123}'


def test_without_a_question_there_is_no_answer():
    assert answers.answer(b"nothing") is None


def test_a_name_that_is_a_prefix_of_another_is_not_mixed_up():
    assert answers.planted_value(b"@value alpha_port = 1\n@value alpha = 2\n", "alpha") == 2


def test_altered_values_keep_the_token_count_and_change_the_digits(tokenizer):
    ids = tokenizer.encode("a\n@value alpha_port = 938639\n@value beta = 123456\n").tolist()
    changed = answers.alter_values(tokenizer, ids)
    text = tokenizer.decode_bytes(changed)
    assert len(changed) == len(ids)
    assert answers.planted_value(text, "alpha_port") not in (None, 938639)
    assert answers.planted_value(text, "beta") not in (None, 123456)


def test_only_as_many_values_change_as_asked_for(tokenizer):
    ids = tokenizer.encode("@value a = 938639\n@value b = 123456\n").tolist()
    text = tokenizer.decode_bytes(answers.alter_values(tokenizer, ids, limit=1))
    assert answers.planted_value(text, "a") != 938639
    assert answers.planted_value(text, "b") == 123456


def test_the_output_is_the_answer_and_an_end_token(tokenizer):
    output = plan(tokenizer)
    assert json.loads(output.text) == {"alpha_port": 938639, "beta": 123, "gone": None}
    assert (output.finish, output.tokens[-1]) == ("stop", tokenizer.eos_id)


def test_an_answer_cut_by_max_tokens_ends_with_length(tokenizer):
    output = plan(tokenizer, sampling=Sampling(max_tokens=5))
    assert (len(output.tokens), output.finish) == (5, "length")


def test_forced_length_gives_exactly_that_many_filler_tokens(tokenizer):
    output = plan(tokenizer, sampling=Sampling(max_tokens=512, min_tokens=512, ignore_eos=True))
    assert (len(output.tokens), output.finish) == (512, "length")
    assert "{" not in output.text


def test_min_tokens_lengthens_a_short_answer(tokenizer):
    output = plan(tokenizer, b"@ask a\n", sampling=Sampling(max_tokens=200, min_tokens=100))
    assert len(output.tokens) >= 100


def test_filler_depends_on_content_and_not_on_reuse(tokenizer):
    assert plan(tokenizer, b"one").text == plan(tokenizer, b"one", reused=True).text
    assert plan(tokenizer, b"one").text != plan(tokenizer, b"two").text


def test_filler_differs_between_arms_only_where_that_is_switched_on(tokenizer):
    same = [plan(tokenizer, b"one", connector=c).text for c in (False, True)]
    other = [plan(tokenizer, b"one", connector=c, text_varies_by_source=True).text for c in (False, True)]
    assert same[0] == same[1]
    assert other[0] != other[1]


def test_a_wrong_model_is_wrong_when_cold(tokenizer):
    assert json.loads(plan(tokenizer, faults=["wrong_model_answer"]).text)["alpha_port"] == 938640


@pytest.mark.parametrize(("reused", "value"), [(False, 938639), (True, 938640)])
def test_numeric_drift_shows_on_any_reuse_and_only_then(tokenizer, reused, value):
    assert json.loads(plan(tokenizer, reused=reused, faults=["numeric_drift"]).text)["alpha_port"] == value


def test_a_stop_string_ends_the_output_and_is_not_shown(tokenizer):
    output = plan(tokenizer, sampling=Sampling(max_tokens=64, stop=(',"beta"',)))
    assert (output.text, output.finish, output.stop_reason) == ('{"alpha_port":938639', "stop", ',"beta"')


def test_reasoning_comes_before_the_answer(tokenizer):
    output = plan(tokenizer, reasoning_tokens=7)
    assert output.reasoning == 7
    assert json.loads(output.text)["alpha_port"] == 938639


def test_a_character_that_spans_tokens_comes_whole(tokenizer):
    output = plan(tokenizer, b"x", filler_alphabet="unicode", sampling=Sampling(max_tokens=200, ignore_eos=True))
    assert "�" not in output.text
    assert "中" in output.text
    assert "" in output.pieces


def test_a_forced_tool_call_carries_json_arguments(tokenizer):
    output = plan(
        tokenizer, b"no question", sampling=Sampling(max_tokens=64, forced_tool="f", tool_finish="tool_calls")
    )
    assert json.loads(output.text) == {"value": 0}
    assert output.finish == "tool_calls"


def test_a_remembered_output_is_what_planning_again_gives(tokenizer):
    sampling, source = Sampling(max_tokens=64, ignore_eos=True), Source(text=b"some text", reused=False)
    planner = Planner(tokenizer, ReplicaSettings())
    first = planner.plan(sampling, source)
    assert planner.plan(sampling, Source(text=b"some text", reused=True)) is first
    assert first == generation.plan(tokenizer, ReplicaSettings(), sampling, source)
    assert planner.plan(sampling, Source(text=b"other text", reused=False)).text != first.text


def test_an_output_under_a_fault_is_never_remembered(tokenizer):
    planner = Planner(tokenizer, ReplicaSettings())
    wrong = Source(text=TEXT, reused=True, faults=ActiveFaults([FaultSpec(kind="wrong_model_answer")]))
    assert planner.plan(Sampling(max_tokens=64), wrong).text != answers.answer(TEXT)
    assert planner.plan(Sampling(max_tokens=64), Source(text=TEXT, reused=True)).text == answers.answer(TEXT)
