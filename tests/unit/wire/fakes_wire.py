"""Reads and observations for the wire tests. Times in milliseconds where a name says so."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from harness.model.observation import Completed, Observation, RawRead, Stamps
from harness.wire.chat import Interpreted, interpret

MS = 1_000_000
DONE = b"data: [DONE]\n\n"


def event(body: object) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


def delta(finish: str | None = None, **fields: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def usage(completion: int, prompt: int = 9, **extra: object) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}, **extra})


def reads(*timed: tuple[int, bytes]) -> list[RawRead]:
    return [RawRead(at_ns=at_ms * MS, user_ns=at_ms * MS + 7, data=data) for at_ms, data in timed]


def interpret_at(*timed: tuple[int, bytes]) -> Interpreted:
    return interpret(reads(*timed))


def observe(stream: Interpreted, start_ns: int = 0) -> Observation:
    """The observation a client would make of this stream."""
    stamps = Stamps(start_ns=start_ns, first_content_ns=stream.first_content_ns, last_content_ns=stream.last_content_ns)
    return Observation(
        replica="A",
        url="",
        http_status=200,
        stamps=stamps,
        stamp_source="callback",
        outcome=stream.outcome,
        usage=stream.usage,
        content=stream.content,
        reasoning=stream.reasoning,
        events=stream.events,
    )


def kinds(stream: Interpreted) -> Sequence[str]:
    return [event.kind for event in stream.events]


def completed(stream: Interpreted) -> bool:
    return isinstance(stream.outcome, Completed)
