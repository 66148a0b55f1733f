"""Chunks and bodies with vLLM's fields in vLLM's order."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.sim import VERSION

FINGERPRINT = VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one request; `sim` tells about missed deadlines."""

    prompt: int
    completion: int
    cached: int
    created_cache: int
    sim: dict[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        """The `usage` object."""
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": {
                "cached_tokens": self.cached,
                "created_cache_tokens": self.created_cache,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one delta carries. `tool` is set on deltas of a tool call: (call id, name or None)."""

    text: str
    token_ids: list[int]
    reasoning_field: str | None = None
    tool: tuple[str, str | None] | None = None
    finish: str | None = None
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Builds every JSON object of one response."""

    chat: bool
    model: str
    return_token_ids: bool = False
    prompt_ids: list[int] | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    key: str = field(default_factory=lambda: secrets.token_hex(8))

    def _head(self, *, streamed: bool) -> dict[str, Any]:
        kind = "chat.completion" if self.chat else "text_completion"
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.key}",
            "object": kind + (".chunk" if self.chat and streamed else ""),
            "created": self.created,
            "model": self.model,
        }

    def role(self, usage: Usage | None = None) -> bytes:
        """The role chunk with empty content."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk = {**self._head(streamed=True), "choices": [choice]}
        if usage is not None:
            chunk["usage"] = usage.fields()
        ids = self.prompt_ids if self.return_token_ids else None
        return orjson.dumps({**chunk, "prompt_token_ids": ids, "prompt_text": None})

    def delta(self, piece: Piece, usage: Usage | None = None) -> bytes:
        """A content, reasoning or tool-call chunk; the last one carries the finish reason."""
        ids = piece.token_ids if self.return_token_ids else None
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice |= {"delta": _delta(piece), "logprobs": None, "finish_reason": piece.finish}
            if piece.finish is not None:
                choice["stop_reason"] = piece.stop_reason
            choice["token_ids"] = ids
        else:
            choice |= {"text": piece.text, "logprobs": None, "finish_reason": piece.finish}
            choice |= {"stop_reason": piece.stop_reason, "prompt_token_ids": None, "token_ids": ids}
        chunk = {**self._head(streamed=True), "choices": [choice]}
        if usage is not None:
            chunk["usage"] = usage.fields()
        return orjson.dumps(chunk)

    def usage(self, usage: Usage) -> bytes:
        """The usage chunk; `choices` is empty."""
        chunk = {**self._head(streamed=True), "choices": [], "usage": usage.fields(), "system_fingerprint": FINGERPRINT}
        if usage.sim is not None:
            chunk["sim"] = usage.sim
        return orjson.dumps(chunk)

    def body(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole response of a request that does not stream."""
        last, ids = pieces[-1], [i for piece in pieces for i in piece.token_ids]
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = _message(pieces)
        else:
            choice["text"] = "".join(piece.text for piece in pieces)
        choice |= {"logprobs": None, "finish_reason": last.finish, "stop_reason": last.stop_reason}
        choice["token_ids"] = ids if self.return_token_ids else None
        head = self._head(streamed=False)
        body = {**head, "choices": [choice], "system_fingerprint": FINGERPRINT, "usage": usage.fields()}
        if self.chat:
            body["prompt_token_ids"] = self.prompt_ids if self.return_token_ids else None
        if usage.sim is not None:
            body["sim"] = usage.sim
        return orjson.dumps(body)


def _delta(piece: Piece) -> dict[str, Any]:
    if piece.tool is not None:
        call_id, name = piece.tool
        if name is None:
            return {"tool_calls": [{"index": 0, "function": {"arguments": piece.text}}]}
        function = {"name": name, "arguments": piece.text}
        return {"tool_calls": [{"id": call_id, "type": "function", "index": 0, "function": function}]}
    return {piece.reasoning_field or "content": piece.text}


def _message(pieces: list[Piece]) -> dict[str, Any]:
    text = "".join(p.text for p in pieces if p.reasoning_field is None and p.tool is None)
    reasoning = "".join(p.text for p in pieces if p.reasoning_field is not None)
    calls = [p for p in pieces if p.tool is not None]
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": None}
    if calls and calls[0].tool is not None:
        call_id, name = calls[0].tool
        function = {"name": name, "arguments": "".join(p.text for p in calls)}
        message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
    message["reasoning"] = reasoning or None
    return message


ERROR_EVENT = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def error_event(message: str = ERROR_EVENT, code: int = 500) -> bytes:
    """An error object as it comes inside a stream."""
    kind = "InternalServerError" if code >= 500 else "BadRequestError"
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
