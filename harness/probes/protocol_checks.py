"""Layer 6, the judgements: what came over the wire → what is wrong in words, None where nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from harness.model.observation import Observation, StreamEvent

_KNOWN_FINISH = frozenset({"stop", "length", "tool_calls"})
_QUIET = frozenset({"ping", "empty", "sim"})


def role_chunk(seen: Observation) -> str | None:
    """The first event is the role chunk."""
    kinds = [event.kind for event in _said(seen)]
    return None if kinds[:1] == ["role"] else f"the first event is {kinds[0] if kinds else 'missing'}, not role"


def content(seen: Observation) -> str | None:
    """There is content, and it is what the content events say together."""
    text = "".join(event.text or "" for event in seen.events if event.kind == "content")
    return None if text and text == seen.content else f"content events say {text!r}"


def finish(seen: Observation) -> str | None:
    """Exactly one event carries a finish reason, a known one, and no content follows it."""
    at = [event for event in seen.events if event.finish_reason is not None]
    if len(at) != 1:
        return f"{len(at)} events carry a finish_reason"
    if at[0].finish_reason not in _KNOWN_FINISH:
        return f"unknown finish_reason {at[0].finish_reason!r}"
    late = [event for event in seen.events if event.kind == "content" and event.index > at[0].index]
    return f"{len(late)} content events after the finish_reason" if late else None


def usage(seen: Observation) -> str | None:
    """Usage comes after the finish reason, with both counts above 0."""
    if seen.usage is None:
        return "no usage"
    if seen.usage.prompt_tokens <= 0 or seen.usage.completion_tokens <= 0:
        return f"usage says {seen.usage.prompt_tokens} and {seen.usage.completion_tokens} tokens"
    ends = [event.index for event in seen.events if event.finish_reason is not None]
    told = [event.index for event in seen.events if event.kind == "usage"]
    return None if told and ends and told[-1] >= ends[-1] else "no usage chunk after the finish_reason"


def done(seen: Observation) -> str | None:
    """`[DONE]` comes once, last."""
    kinds = [event.kind for event in _said(seen)]
    if kinds.count("done") != 1:
        return f"[DONE] {kinds.count('done')} times"
    return None if kinds[-1] == "done" else f"{kinds[-1]} after [DONE]"


def tool_call(seen: Observation, name: str, allowed: Mapping[str, tuple[Any, ...]] | None) -> str | None:
    """Deltas put together are one call of `name` whose arguments are a JSON object; its values where `allowed` says."""
    if not seen.ok:
        return f"failed: {seen.outcome}"
    if len(seen.tool_calls) != 1:
        return f"{len(seen.tool_calls)} tool calls"
    function = seen.tool_calls[0].get("function")
    if not isinstance(function, Mapping) or function.get("name") != name:
        return f"called {function!r}"
    try:
        arguments = json.loads(str(function.get("arguments")))
    except ValueError as error:
        return f"arguments are no JSON ({error}): {function.get('arguments')!r}"
    if not isinstance(arguments, dict):
        return f"arguments are no object: {arguments!r}"
    wrong = {key: arguments.get(key) for key, values in (allowed or {}).items() if arguments.get(key) not in values}
    return f"arguments outside the schema: {wrong!r}" if wrong else None


def stop_string(text: str) -> str | None:
    """A string from the middle of a text that is good to stop at; None where the text has none."""
    for length in (4, 3, 2, 1):
        for start in range(max(1, len(text) // 3), len(text) - length + 1):
            found = text[start : start + length]
            if found.strip() and "\N{REPLACEMENT CHARACTER}" not in found:
                return found
    return None


def stopped(seen: Observation, whole: str, at: str) -> str | None:
    """The stream ended with `stop` just before the first occurrence of `at` in the whole text."""
    if not seen.ok:
        return f"failed: {seen.outcome}"
    reasons = [event.finish_reason for event in seen.events if event.finish_reason]
    if reasons != ["stop"]:
        return f"finish_reason {reasons} at stop string {at!r}"
    want = whole[: whole.find(at)]
    return None if seen.content == want else f"{seen.content!r} instead of {want!r} before {at!r}"


def length(seen: Observation, tokens: int) -> str | None:
    """Exactly `tokens` output tokens, finish reason `length`."""
    if not seen.ok or seen.usage is None:
        return f"failed: {seen.outcome}"
    reasons = [event.finish_reason for event in seen.events if event.finish_reason]
    if reasons != ["length"] or seen.usage.completion_tokens != tokens:
        return f"{seen.usage.completion_tokens} tokens, finish_reason {reasons}, wanted {tokens} and length"
    return None


def error_shape(status: int, body: bytes, wanted: range) -> str | None:
    """An error answer: its status, and an object with a message, a type and the same code."""
    if status not in wanted:
        return f"HTTP {status}: {body[:200]!r}"
    try:
        document = json.loads(body)
    except ValueError:
        return f"HTTP {status} without JSON: {body[:200]!r}"
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str) or not error["message"]:
        return f"no error.message: {body[:200]!r}"
    if not isinstance(error.get("type"), str) or error.get("code") != status:
        return f"error.type {error.get('type')!r}, error.code {error.get('code')!r} with HTTP {status}"
    return None


STREAM: Mapping[str, Callable[[Observation], str | None]] = {
    "role chunk first": role_chunk,
    "content": content,
    "one finish_reason, nothing after it": finish,
    "usage after the finish": usage,
    "[DONE] once and last": done,
}
"""Five of the eleven checks: all on one stream."""


def _said(seen: Observation) -> list[StreamEvent]:
    return [event for event in seen.events if event.kind not in _QUIET]
