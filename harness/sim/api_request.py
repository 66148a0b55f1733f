"""Requests to the OpenAI-compatible endpoints: what is accepted, what is refused and in which words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.sim.generation import Sampling

SALT_LIMIT = 128
SALT_FORBIDDEN = "@/\\\0"


class ApiError(Exception):
    """A refusal with HTTP status, in vLLM's error shape."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A validated request. Exactly one of `messages` and `prompt` is given."""

    model: str
    messages: list[dict[str, Any]] | None = None
    prompt: str | list[int] | None = None
    sampling: Sampling
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    salt: str = ""
    tools: Any = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object, or a 400."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"JSON decode error: {error}") from error
    if not isinstance(data, dict):
        raise ApiError(400, "the body must be a JSON object")
    return data


def parse_chat(body: bytes) -> ApiRequest:
    """A /v1/chat/completions request."""
    data = parse_object(body)
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a non-empty list", param="messages")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ApiError(400, "every message needs a role", param="messages")
    tool, finish = _forced_tool(data)
    return _request(data, messages=messages, tool=tool, tool_finish=finish)


def parse_completion(body: bytes) -> ApiRequest:
    """A /v1/completions request."""
    data = parse_object(body)
    prompt = data.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    ids = isinstance(prompt, list) and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in prompt)
    if not prompt or not (isinstance(prompt, str) or ids):
        raise ApiError(400, "prompt must be one non-empty string or list of token ids", param="prompt")
    return _request(data, prompt=prompt)


def _request(
    data: dict[str, Any],
    *,
    messages: list[dict[str, Any]] | None = None,
    prompt: str | list[int] | None = None,
    tool: str | None = None,
    tool_finish: str = "stop",
) -> ApiRequest:
    options = _typed(data, "stream_options", dict, {})
    stream = _typed(data, "stream", bool, default=False)
    if options and not stream:
        raise ApiError(400, "Stream options can only be defined when `stream=True`.", param="stream_options")
    if _integer(data, "n", 1, 1) != 1:
        raise ApiError(400, "only n = 1 is simulated", param="n")
    return ApiRequest(
        model=_typed(data, "model", str, ""),
        messages=messages,
        prompt=prompt,
        sampling=_sampling(data, tool, tool_finish, chat=messages is not None),
        stream=stream,
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        return_token_ids=_typed(data, "return_token_ids", bool, default=False),
        salt=_salt(data),
        tools=data.get("tools"),
        template_kwargs=_typed(data, "chat_template_kwargs", dict, {}),
    )


def _sampling(data: dict[str, Any], tool: str | None, tool_finish: str, *, chat: bool) -> Sampling:
    most = _integer(data, "max_completion_tokens", 1, None) or _integer(data, "max_tokens", 1, None)
    least = _integer(data, "min_tokens", 0, 0) or 0
    if most is not None and least > most:
        raise ApiError(400, f"min_tokens must be less than or equal to max_tokens={most}, got {least}.")
    temperature = data.get("temperature")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        raise ApiError(400, "temperature must be a number", param="temperature")
    if temperature is not None and temperature < 0:
        raise ApiError(400, f"temperature must be non-negative, got {temperature}.", param="temperature")
    stop = data.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(s, str) for s in stop):
        raise ApiError(400, "stop must be a string or a list of strings", param="stop")
    return Sampling(
        max_tokens=most if most is not None else (0 if chat else 16),
        min_tokens=least,
        ignore_eos=_typed(data, "ignore_eos", bool, default=False),
        stop=tuple(stop),
        seed=_integer(data, "seed", None, 0) or 0,
        forced_tool=tool,
        tool_finish=tool_finish,
    )


def _typed(data: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise ApiError(400, f"{name}: expected {kind.__name__}", param=name)
    return value


def _integer(data: dict[str, Any], name: str, least: int | None, default: int | None) -> int | None:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        raise ApiError(400, f"{name}: expected an integer" + ("" if least is None else f" >= {least}"), param=name)
    return value


def _salt(data: dict[str, Any]) -> str:
    salt = data.get("cache_salt")
    if salt is None:
        return ""
    if not isinstance(salt, str) or not 0 < len(salt) <= SALT_LIMIT or any(c in salt for c in SALT_FORBIDDEN):
        message = f"cache_salt must be a string of 1 to {SALT_LIMIT} characters without @, /, \\ and NUL"
        raise ApiError(400, message, param="cache_salt")
    return salt


def _forced_tool(data: dict[str, Any]) -> tuple[str | None, str]:
    """The tool that must be called, and the finish reason that comes with it ("stop" for a named one)."""
    choice, tools = data.get("tool_choice"), data.get("tools") or []
    if choice is None or choice in ("none", "auto"):
        return None, "stop"
    names = [t["function"]["name"] for t in tools if isinstance(t, dict) and isinstance(t.get("function"), dict)]
    if choice == "required" and names:
        return str(names[0]), "tool_calls"
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        if name in names:
            return str(name), "stop"
    raise ApiError(400, "tool_choice does not name one of the tools", param="tool_choice")
