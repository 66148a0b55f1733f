"""One JSON chunk of an OpenAI-style stream → what it carries. Chat and completions shapes, several servers' habits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from harness.model.observation import Usage

_FAILED_FINISH = frozenset({"error", "abort"})
"""finish_reason values with which an engine says that the request failed or was abandoned."""


class ChunkError(ValueError):
    """The data of an event is no chunk: not JSON, or of a shape that cannot be read without guessing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one chunk carries; every field is None or empty where the chunk says nothing about it."""

    role: bool = False
    content: str = ""
    reasoning: str = ""
    tool_deltas: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    error: str | None = None
    sim: Mapping[str, Any] | None = None


def read_chunk(data: str) -> Chunk:
    """Read the data of one SSE event. Raises ChunkError where it is no JSON object or holds the wrong types."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as broken:
        raise ChunkError(f"no JSON ({broken}): {data[:200]!r}") from None
    if not isinstance(body, dict):
        raise ChunkError(f"no JSON object: {data[:200]!r}")
    error = _error(body)
    if error is not None:
        return Chunk(error=error)
    usage, sim = _usage(body), body.get("sim")
    choice = _choice(body)
    if choice is None:
        return Chunk(usage=usage, sim=sim if isinstance(sim, dict) else None)
    return _with_choice(choice, usage, sim if isinstance(sim, dict) else None)


def _with_choice(choice: Mapping[str, Any], usage: Usage | None, sim: Mapping[str, Any] | None) -> Chunk:
    delta = choice.get("delta")
    if delta is None:
        delta = {}
    if not isinstance(delta, dict):
        raise ChunkError(f"delta is no object: {str(delta)[:200]}")
    content = delta.get("content") if "delta" in choice else choice.get("text")
    reasoning = delta.get("reasoning")
    if reasoning is None:
        reasoning = delta.get("reasoning_content")
    finish = choice.get("finish_reason")
    return Chunk(
        role="role" in delta,
        content=_text(content, "content"),
        reasoning=_text(reasoning, "reasoning"),
        tool_deltas=_tool_deltas(delta.get("tool_calls")),
        finish_reason=_text(finish, "finish_reason") or None,
        usage=usage,
        error=f"finish_reason {finish}" if finish in _FAILED_FINISH else None,
        sim=sim,
    )


def _choice(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The choice with index 0; None for empty or missing `choices` (usage and keep-alive chunks)."""
    choices = body.get("choices")
    if choices is None:
        return None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ChunkError(f"choices is no list of objects: {str(choices)[:200]}")
    return next((choice for choice in choices if choice.get("index", 0) == 0), None)


def _text(value: object, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ChunkError(f"{what} is no text: {str(value)[:200]}")
    return value


def _tool_deltas(value: object) -> tuple[Mapping[str, Any], ...]:
    if not value:
        return ()
    if not isinstance(value, list) or not all(isinstance(delta, dict) for delta in value):
        raise ChunkError(f"tool_calls is no list of objects: {str(value)[:200]}")
    if not all(isinstance(delta.get("index", 0), int) for delta in value):
        raise ChunkError(f"tool_calls without a whole number as index: {str(value)[:200]}")
    return tuple(value)


def _error(body: Mapping[str, Any]) -> str | None:
    """The words of an error object; `"error": null` is none. Older servers mark the object itself as an error."""
    error = body.get("error")
    if error is None and body.get("object") == "error":
        error = body
    return None if error is None else error_words(error)


def error_words(error: object) -> str:
    """An error value (object or text) in words: its message, with type and code where it has them."""
    if not isinstance(error, dict):
        return str(error)
    words = str(error.get("message") or error)
    marks = [f"{name} {error[name]}" for name in ("type", "code") if error.get(name) is not None]
    return f"{words} ({', '.join(marks)})" if marks else words


def _usage(body: Mapping[str, Any]) -> Usage | None:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached is None and isinstance(body.get("timings"), dict):
        cached = _count(body["timings"].get("cache_n"))  # llama.cpp says it here
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
