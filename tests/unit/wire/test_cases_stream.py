"""Public cases SSE-1 to SSE-4, TIM-1 and TIM-2, by id."""

import time

import pytest
from fakes_wire import DONE, MS, completed, delta, event, interpret_at, kinds, observe, usage

from harness.model.observation import Completed, Failed, FailureKind
from harness.wire import chunks
from harness.wire.rates import rates

GOOD_END = delta("stop") + usage(3) + DONE


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_sse_1_unicode_separators_are_content_and_end_no_line(separator: str) -> None:
    raw = 'data: {"choices":[{"index":0,"delta":{"content":"A%sB"}}]}\n\n' % separator  # noqa: UP031 - braces abound
    stream = interpret_at((5, raw.encode()))
    assert kinds(stream) == ["content"]
    assert stream.content == f"A{separator}B"
    assert stream.first_content_ns == 5 * MS


def test_sse_2_only_non_empty_content_is_a_first_token() -> None:
    stream = interpret_at(
        (5, delta(role="assistant", content="")),
        (6, delta(content=None)),
        (7, usage(0)),
        (8, event({"id": "x"})),
        (200, delta(content="\n")),
        (220, delta("stop")),
        (221, usage(1) + DONE),
    )
    row = rates(observe(stream))
    assert completed(stream)
    assert row.ttft_ns == 200 * MS
    assert stream.usage is not None
    assert stream.usage.completion_tokens == 1
    assert row.decode_rate is None
    assert kinds(stream) == ["role", "empty", "usage", "empty", "content", "finish", "usage", "done"]


def test_sse_3a_a_character_split_over_three_reads_is_one_character() -> None:
    raw = delta(content="\u4e2d")
    at = raw.index(b"\xe4")
    stream = interpret_at((1, raw[: at + 1]), (2, raw[at + 1 : at + 2]), (3, raw[at + 2 :]), (4, GOOD_END))
    assert stream.content == "\u4e2d"
    assert completed(stream)
    assert stream.first_content_ns == 3 * MS


def test_sse_3b_three_events_in_one_read_share_its_stamp_and_say_so() -> None:
    three = (delta(content="a") + delta(content="b") + delta(content="c")).replace(b"\n\n", b"\r\n\r\n")
    stream = interpret_at((10, three))
    assert kinds(stream) == ["content"] * 3
    assert {found.at_ns for found in stream.events} == {10 * MS}
    assert stream.coalesced_max == 3
    assert stream.coalesced_reads == 1


def test_sse_3c_a_crlf_split_between_its_halves_makes_no_phantom_event() -> None:
    raw = delta(content="a").replace(b"\n\n", b"\r\n\r\n")
    cut = raw.index(b"\r") + 1
    stream = interpret_at((1, raw[:cut]), (2, raw[cut:]), (3, b"\n"))
    assert kinds(stream) == ["content"]


def test_sse_3_an_invalid_byte_is_an_error_row_and_no_replacement_character() -> None:
    stream = interpret_at((1, delta(content="ok")), (2, b'data: {"x":"\xff"}\n\n'), (3, GOOD_END))
    assert isinstance(stream.outcome, Failed)
    assert stream.outcome.kind is FailureKind.BAD_UTF8
    assert "\ufffd" not in stream.content


THREE = delta(content="a") + delta(content="b") + delta(content="c")
ERROR = event({"error": {"message": "x", "code": 500}})


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        pytest.param(THREE + ERROR + DONE, FailureKind.ERROR_EVENT, id="a-error-in-mid-stream"),
        pytest.param(ERROR + DONE, FailureKind.ERROR_EVENT, id="b-error-first"),
        pytest.param(THREE, FailureKind.SHORT_STREAM, id="c-early-end"),
        pytest.param(b"event: error\ndata: x\n\n" + DONE, FailureKind.ERROR_EVENT, id="e-error-event"),
    ],
)
def test_sse_4_an_error_under_http_200_or_an_early_end_is_a_failure(raw: bytes, kind: FailureKind) -> None:
    stream = interpret_at((100, raw))
    assert isinstance(stream.outcome, Failed)
    assert stream.outcome.kind is kind


def test_sse_4a_the_ttft_of_a_failed_stream_is_kept_for_diagnosis() -> None:
    assert interpret_at((100, THREE + ERROR + DONE)).first_content_ns == 100 * MS


def test_sse_4d_a_null_error_and_the_word_error_in_the_text_are_no_error() -> None:
    chunk = event({"error": None, "choices": [{"index": 0, "delta": {"content": 'an error: {"error": 1}'}}]})
    assert interpret_at((1, chunk + GOOD_END)).outcome == Completed(finish_reason="stop")


def test_tim_1_stamps_do_not_move_with_the_parser_or_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, steps = chunks.read_chunk, []

    def slow_parser(data: str) -> chunks.Chunk:
        steps.append(time.monotonic())  # stands for work: no sleep is needed to show that stamps are given, not taken
        return slow(data)

    monkeypatch.setattr("harness.wire.chat.read_chunk", slow_parser)
    monkeypatch.setattr(time, "time", lambda: -3600.0)
    stream = interpret_at((100, delta(content="a")), (200, delta("stop", content="b")), (900, usage(2)), (905, DONE))
    row = rates(observe(stream))
    assert steps
    assert (row.ttft_ns, stream.last_content_ns, row.decode_window_ns) == (100 * MS, 200 * MS, 100 * MS)
    assert row.decode_rate == pytest.approx(10.0)


TIMES = (100, 200, 300, 400, 500)


def five_chunks(cumulative: tuple[int, ...] | None, *, final: bool) -> list[tuple[int, bytes]]:
    timed = []
    for index, at in enumerate(TIMES):
        body: dict[str, object] = {"choices": [{"index": 0, "delta": {"content": "some words"}}]}
        if cumulative:
            body["usage"] = {"prompt_tokens": 9, "completion_tokens": cumulative[index]}
        timed.append((at, event(body)))
    return [*timed, (600, delta("stop") + (usage(20) if final else b"") + DONE)]


def test_tim_2_tokens_come_from_usage_and_chunks_are_counted_apart() -> None:
    stream = interpret_at(*five_chunks(None, final=True))
    row = rates(observe(stream))
    assert stream.usage is not None
    assert (stream.usage.completion_tokens, row.content_chunks) == (20, 5)
    assert row.decode_rate == pytest.approx(19 / 0.4)
    assert row.first_chunk_tokens_unknown


def test_tim_2_cumulative_usage_tells_the_tokens_of_the_first_chunk() -> None:
    row = rates(observe(interpret_at(*five_chunks((1, 6, 11, 16, 20), final=True))))
    assert row.decode_rate == pytest.approx(19 / 0.4)
    assert row.first_chunk_tokens == 1
    assert not row.first_chunk_tokens_unknown


def test_tim_2_without_usage_the_rate_is_null_and_never_a_chunk_count() -> None:
    stream = interpret_at(*five_chunks(None, final=False))
    assert rates(observe(stream)).decode_rate is None
    assert stream.outcome == Failed(kind=FailureKind.NO_USAGE, detail="[DONE] without a usage object")
