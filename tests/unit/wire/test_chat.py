import pytest
from fakes_wire import DONE, MS, delta, event, interpret_at, kinds, observe, reads, usage

from harness.model.observation import Completed, Failed, FailureKind, Usage
from harness.wire.chat import interpret
from harness.wire.rates import decode_rate, rates

END = usage(2) + DONE


def failure_of(raw: bytes) -> FailureKind | None:
    outcome = interpret_at((1, raw)).outcome
    return outcome.kind if isinstance(outcome, Failed) else None


def test_a_chunk_that_is_content_and_finish_gives_both_stamps() -> None:
    stream = interpret_at((1, delta(content="a")), (2, delta("length", content="b") + END))
    assert (stream.last_content_ns, stream.finish_ns) == (2 * MS, 2 * MS)
    assert stream.events[1].finish_reason == "length"
    assert stream.outcome == Completed(finish_reason="length")


def test_a_role_chunk_with_content_is_a_first_token() -> None:
    stream = interpret_at((3, delta(role="assistant", content="Hi")))
    assert (stream.role_ns, stream.first_content_ns) == (3 * MS, 3 * MS)
    assert kinds(stream) == ["content"]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_apart_from_content(name: str) -> None:
    stream = interpret_at((1, delta(**{name: "hm"})), (2, delta(content="a")))
    assert (stream.reasoning, stream.content) == ("hm", "a")
    assert (stream.first_reasoning_ns, stream.first_content_ns) == (1 * MS, 2 * MS)


def test_completions_chunks_carry_text() -> None:
    chunk = event({"choices": [{"index": 0, "text": "abc", "finish_reason": "stop"}]})
    stream = interpret_at((1, chunk + END))
    assert stream.content == "abc"
    assert stream.outcome == Completed(finish_reason="stop")


def test_tool_call_pieces_are_put_together_by_index() -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    other = {"index": 1, "id": "c2", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    more = {"index": 0, "function": {"arguments": '{"a"'}}
    rest = {"index": 0, "function": {"arguments": ":1}"}}
    raw = b"".join(delta(tool_calls=[piece]) for piece in (first, other, more, rest))
    stream = interpret_at((1, raw + delta("tool_calls") + END))
    assert stream.tool_calls == (
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "find", "arguments": "{}"}},
    )
    assert stream.outcome == Completed(finish_reason="tool_calls")
    assert stream.first_content_ns is None


def test_the_last_usage_wins_and_its_cached_tokens_are_read() -> None:
    details = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    stream = interpret_at((1, usage(1)), (2, event({"choices": [], "usage": details})))
    assert stream.usage == Usage(prompt_tokens=9, completion_tokens=2, cached_tokens=4)
    assert stream.usage_ns == 2 * MS


def test_cached_tokens_that_nobody_reported_are_none_and_not_zero() -> None:
    stream = interpret_at((1, usage(1)))
    assert stream.usage is not None
    assert stream.usage.cached_tokens is None


def test_llama_cpp_timings_tell_the_cached_tokens() -> None:
    stream = interpret_at((1, usage(1, timings={"cache_n": 5, "prompt_n": 4})))
    assert stream.usage is not None
    assert stream.usage.cached_tokens == 5


def test_done_with_nothing_said_is_a_kind_of_its_own() -> None:
    assert failure_of(delta(role="assistant", content="") + usage(0) + DONE) is FailureKind.EMPTY_SUCCESS


def test_content_without_finish_reason_is_no_success() -> None:
    assert failure_of(delta(content="a") + END) is FailureKind.NO_FINISH


def test_finish_without_content_is_a_success_without_first_token() -> None:
    stream = interpret_at((1, delta("stop") + END))
    assert stream.outcome == Completed(finish_reason="stop")
    assert stream.first_content_ns is None
    assert rates(observe(stream)).ttft_ns is None


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_finish_reasons_of_a_failed_request_are_errors(reason: str) -> None:
    assert failure_of(delta(reason, content="a") + END) is FailureKind.ERROR_EVENT


def test_the_older_error_shape_is_an_error() -> None:
    raw = event({"object": "error", "message": "too long", "code": 400})
    stream = interpret_at((1, raw + DONE))
    assert stream.outcome == Failed(kind=FailureKind.ERROR_EVENT, detail="too long (code 400)")


@pytest.mark.parametrize("body", [5, [], {"choices": {}}, {"choices": [{"delta": []}]}])
def test_chunks_of_another_shape_are_not_guessed_at(body: object) -> None:
    assert failure_of(event(body) + DONE) is FailureKind.BAD_JSON


def test_content_that_is_no_text_is_not_guessed_at() -> None:
    assert failure_of(delta(content=["a"]) + DONE) is FailureKind.BAD_JSON


def test_data_that_is_no_json_fails_the_row() -> None:
    assert failure_of(b"data: {nope\n\n" + DONE) is FailureKind.BAD_JSON


def test_other_choices_are_not_mixed_into_the_answer() -> None:
    raw = event({"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]})
    assert interpret_at((1, raw)).content == "a"


def test_what_comes_after_done_is_shown_and_counts_for_nothing() -> None:
    stream = interpret_at((1, delta("stop", content="a") + END + delta(content="late")))
    assert stream.content == "a"
    assert kinds(stream)[-1] == "empty"
    assert stream.outcome == Completed(finish_reason="stop")


def test_a_reset_after_done_costs_nothing() -> None:
    late = Failed(kind=FailureKind.RESET, detail="reset by peer")
    stream = interpret(reads((1, delta("stop", content="a") + END)), failure=late)
    assert stream.outcome == Completed(finish_reason="stop")


def test_a_reset_before_done_is_the_outcome() -> None:
    early = Failed(kind=FailureKind.RESET, detail="reset by peer")
    assert interpret(reads((1, delta(content="a"))), failure=early).outcome == early


def test_an_error_that_the_server_named_explains_more_than_the_reset_after_it() -> None:
    early = Failed(kind=FailureKind.RESET, detail="reset by peer")
    outcome = interpret(reads((1, event({"error": "dead"}))), failure=early).outcome
    assert outcome == Failed(kind=FailureKind.ERROR_EVENT, detail="dead")


def test_a_cut_in_mid_event_tells_what_was_cut() -> None:
    outcome = interpret_at((1, delta(content="a") + b'data: {"choi')).outcome
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.SHORT_STREAM
    assert "choi" in outcome.detail


def test_pings_are_recorded_and_are_neither_tokens_nor_coalescing() -> None:
    stream = interpret_at((1, b": ping\n\n: ping\n\n" + delta(content="a")))
    assert kinds(stream) == ["ping", "ping", "content"]
    assert stream.coalesced_max == 1


def test_the_simulator_says_what_it_missed() -> None:
    stream = interpret_at((1, usage(1, sim={"missed": 2, "max_late_ns": 1500, "time_scale": 0.5})))
    assert (stream.sim_missed, stream.sim_max_late_ns, stream.sim_time_scale) == (2, 1500, 0.5)


def test_a_real_engine_says_nothing_about_missed_deadlines() -> None:
    stream = interpret_at((1, usage(1)))
    assert (stream.sim_missed, stream.sim_max_late_ns) == (None, None)


def test_the_decode_rate_is_null_where_all_content_shares_one_stamp() -> None:
    stream = interpret_at((1, delta(content="a") + delta("stop", content="b") + END))
    assert decode_rate(observe(stream)) is None


def test_the_decode_rate_is_null_where_reasoning_tokens_are_in_the_count() -> None:
    stream = interpret_at((1, delta(reasoning="x")), (2, delta(content="a")), (3, delta("stop", content="b") + END))
    assert decode_rate(observe(stream)) is None


def test_events_know_the_read_that_completed_them() -> None:
    raw = delta(content="a")
    stream = interpret_at((1, raw[:10]), (2, raw[10:]), (3, delta(content="b")))
    assert [(found.read_index, found.at_ns) for found in stream.events] == [(1, 2 * MS), (2, 3 * MS)]
    assert stream.events[0].user_ns == 2 * MS + 7
