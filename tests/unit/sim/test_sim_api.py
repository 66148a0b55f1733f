"""What requests are accepted, and what chunks look like."""

import json

import pytest

from harness.sim.api_request import ApiError, parse_chat, parse_completion
from harness.sim.api_response import Piece, Shape, Usage, error_event


def chat(**fields):
    return parse_chat(json.dumps({"messages": [{"role": "user", "content": "x"}], **fields}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"messages": []}',
        b'{"messages": [{"content": "no role"}]}',
    ],
)
def test_a_malformed_chat_request_is_a_400(body):
    with pytest.raises(ApiError) as caught:
        parse_chat(body)
    assert caught.value.status == 400
    assert set(caught.value.body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"max_tokens": True},
        {"max_tokens": 4, "min_tokens": 5},
        {"temperature": -1},
        {"temperature": "hot"},
        {"stop": 3},
        {"n": 2},
        {"stream": "yes"},
        {"stream_options": {"include_usage": True}},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    ],
)
def test_a_wrong_parameter_is_a_400(fields):
    with pytest.raises(ApiError):
        chat(**fields)


@pytest.mark.parametrize("salt", ["", "x" * 129, "a@b", "a/b", "a\\b", "a\0b", 5])
def test_an_unusable_salt_is_refused(salt):
    with pytest.raises(ApiError, match="cache_salt"):
        chat(cache_salt=salt)


def test_a_salt_of_the_greatest_length_is_accepted():
    assert chat(cache_salt="x" * 128).salt == "x" * 128


def test_the_newer_name_of_max_tokens_wins():
    assert chat(max_tokens=3, max_completion_tokens=5).sampling.max_tokens == 5


def test_unknown_fields_are_ignored_as_the_real_server_ignores_them():
    assert chat(colour="red", response_format={"type": "json_object"}).sampling.max_tokens == 0


def test_a_required_tool_finishes_with_tool_calls_and_a_named_one_with_stop():
    tools = [{"type": "function", "function": {"name": "f"}}]
    required = chat(tools=tools, tool_choice="required").sampling
    named = chat(tools=tools, tool_choice={"type": "function", "function": {"name": "f"}}).sampling
    assert [(s.forced_tool, s.tool_finish) for s in (required, named)] == [("f", "tool_calls"), ("f", "stop")]


@pytest.mark.parametrize("prompt", ["text", [1, 2, 3], [[1, 2, 3]], ["text"]])
def test_a_completion_takes_text_or_token_ids(prompt):
    assert parse_completion(json.dumps({"prompt": prompt}).encode()).prompt in ("text", [1, 2, 3])


@pytest.mark.parametrize("prompt", [None, "", [], [True], [-1], ["a", "b"], {"a": 1}])
def test_another_completion_prompt_is_refused(prompt):
    with pytest.raises(ApiError):
        parse_completion(json.dumps({"prompt": prompt}).encode())


SHAPE = Shape(chat=True, model="m", created=1, key="k")


def test_the_role_chunk_has_the_captured_fields_in_order():
    assert SHAPE.role() == (
        b'{"id":"chatcmpl-k","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
        b'"prompt_token_ids":null,"prompt_text":null}'
    )


def test_a_content_chunk_has_the_captured_fields_in_order():
    assert SHAPE.delta(Piece(text="NEW", token_ids=[5])).endswith(
        b'"choices":[{"index":0,"delta":{"content":"NEW"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
    )


def test_the_last_content_chunk_carries_finish_and_stop_reason():
    assert SHAPE.delta(Piece(text="NEW", token_ids=[5], finish="length")).endswith(
        b'"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}'
    )


def test_the_usage_chunk_has_no_choices_and_tells_what_was_cached():
    chunk = json.loads(SHAPE.usage(Usage(prompt=10, completion=2, cached=8, created_cache=0, sim={"missed": 0})))
    assert chunk["choices"] == []
    assert chunk["usage"]["total_tokens"] == 12
    assert chunk["usage"]["prompt_tokens_details"] == {"cached_tokens": 8, "created_cache_tokens": 0}
    assert chunk["sim"] == {"missed": 0}


def test_token_ids_are_sent_only_where_asked_for():
    asked = Shape(chat=True, model="m", return_token_ids=True, prompt_ids=[7])
    assert json.loads(asked.role())["prompt_token_ids"] == [7]
    assert json.loads(asked.delta(Piece(text="x", token_ids=[5])))["choices"][0]["token_ids"] == [5]


def test_a_completion_chunk_carries_text_and_no_role():
    chunk = json.loads(Shape(chat=False, model="m").delta(Piece(text="x", token_ids=[5])))
    assert chunk["object"] == "text_completion"
    assert chunk["choices"][0]["text"] == "x"


def test_a_tool_call_names_itself_once():
    first = json.loads(SHAPE.delta(Piece(text="{", token_ids=[1], tool=("id", "f"))))
    later = json.loads(SHAPE.delta(Piece(text="}", token_ids=[1], tool=("id", None))))
    assert first["choices"][0]["delta"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{"}
    assert later["choices"][0]["delta"]["tool_calls"][0] == {"index": 0, "function": {"arguments": "}"}}


def test_a_whole_body_joins_the_pieces():
    pieces = [Piece(text="a", token_ids=[1]), Piece(text="b", token_ids=[2], finish="stop")]
    body = json.loads(SHAPE.body(pieces, Usage(prompt=1, completion=2, cached=0, created_cache=0)))
    assert body["choices"][0]["message"]["content"] == "ab"
    assert body["choices"][0]["finish_reason"] == "stop"


def test_an_error_event_has_the_error_shape():
    assert json.loads(error_event("x", 500))["error"] == {
        "message": "x",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
