from dataclasses import replace

import orjson
import pytest

from harness.model.observation import Completed, Failed, FailureKind, Observation, Stamps, StreamEvent, Usage
from harness.probes import protocol_checks as checks


def stream(*kinds: str, finish_at: int | None = None, content: str = "ab", tokens: int = 2) -> Observation:
    events = tuple(
        StreamEvent(index=i, at_ns=i, user_ns=i, read_index=i, kind=kind, text=None,
                    finish_reason="length" if i == finish_at else None)
        for i, kind in enumerate(kinds)
    )  # fmt: skip
    texts = iter(content)
    events = tuple(replace(e, text=next(texts, "")) if e.kind == "content" else e for e in events)
    return Observation(
        replica="A", url="", http_status=200, stamps=Stamps(start_ns=0), stamp_source="callback",
        outcome=Completed(finish_reason="length"), content=content, reasoning="", events=events,
        usage=Usage(prompt_tokens=5, completion_tokens=tokens, cached_tokens=0),
    )  # fmt: skip


GOOD = stream("role", "content", "content", "usage", "done", finish_at=2)


@pytest.mark.parametrize("name", checks.STREAM)
def test_a_stream_that_keeps_the_contract_passes(name: str) -> None:
    assert checks.STREAM[name](GOOD) is None


@pytest.mark.parametrize(
    ("check", "seen"),
    [
        (checks.role_chunk, stream("content", "role", "usage", "done", finish_at=0)),
        (checks.content, stream("role", "usage", "done", content="")),
        (checks.content, replace(GOOD, content="abc")),
        (checks.finish, stream("role", "content", "content", "usage", "done")),
        (checks.finish, stream("role", "content", "content", "usage", "done", finish_at=1)),
        (checks.usage, replace(GOOD, usage=None)),
        (checks.usage, stream("role", "content", "usage", "content", "done", finish_at=3)),
        (checks.done, stream("role", "content", "content", "usage", finish_at=2)),
        (checks.done, stream("role", "content", "content", "done", "usage", finish_at=2)),
    ],
)
def test_each_breach_is_said_in_words(check, seen) -> None:
    assert check(seen)


def test_comments_of_the_server_are_no_breach() -> None:
    assert checks.role_chunk(stream("ping", "role", "content", "done", finish_at=2)) is None


def call(arguments: str, name: str = "set_sign") -> Observation:
    return replace(GOOD, tool_calls=({"id": "1", "function": {"name": name, "arguments": arguments}},))


ALLOWED = {"colour": ("red", "green"), "lit": (True, False)}


def test_reassembled_arguments_within_the_schema_pass() -> None:
    assert checks.tool_call(call('{"colour": "red", "lit": true}'), "set_sign", ALLOWED) is None


@pytest.mark.parametrize(
    "seen",
    [
        call('{"colour": "red", "lit": tr'),
        call('{"colour": "blue", "lit": true}'),
        call('["red"]'),
        call("{}", name="other"),
        GOOD,
        replace(GOOD, outcome=Failed(kind=FailureKind.TIMEOUT, detail="")),
    ],
)
def test_a_call_that_is_cut_foreign_or_absent_fails(seen: Observation) -> None:
    assert checks.tool_call(seen, "set_sign", ALLOWED)


def test_a_stop_string_stands_in_the_middle_and_can_be_typed() -> None:
    text = "one two \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} three"
    found = checks.stop_string(text)
    assert found is not None
    assert text.find(found) > 0
    assert "\N{REPLACEMENT CHARACTER}" not in found


def test_a_text_without_anything_to_stop_at_gives_none() -> None:
    assert checks.stop_string("\N{REPLACEMENT CHARACTER}" * 4) is None


def test_a_stop_must_cut_before_its_first_occurrence() -> None:
    events = (replace(GOOD.events[1], finish_reason="stop"),)
    seen = replace(GOOD, content="one ", events=events)
    assert checks.stopped(seen, "one two two", "two") is None
    assert checks.stopped(replace(seen, content="one two "), "one two two", "two")


def test_the_length_is_exact() -> None:
    assert checks.length(GOOD, 2) is None
    assert checks.length(GOOD, 3)


def error(**fields: object) -> bytes:
    return orjson.dumps({"error": {"message": "no", "type": "NotFoundError", "code": 404, **fields}})


def test_an_error_of_the_right_shape_passes() -> None:
    assert checks.error_shape(404, error(), range(404, 405)) is None


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, error()), (400, error()), (404, b"<html>"), (404, b'{"detail":"x"}'), (404, error(code="404")),
     (404, error(message=""))],
)  # fmt: skip
def test_other_statuses_and_shapes_fail(status: int, body: bytes) -> None:
    assert checks.error_shape(status, body, range(404, 405))
