"""Body reads of a streamed chat or completions response → content, stamps, usage, outcome.

Strategy: the SSE decoder says which read completed an event; the event takes that read's stamp. Nothing here measures:
all times come in with the reads, so the speed of this code cannot move a figure (case TIM-1).

A stream is a success only with finish_reason, usage and `[DONE]`. The first reason why it is none wins, in this order:
error under HTTP 200, bytes that are no UTF-8, data that is no chunk, a failure of the transport, an early end, and
last the missing parts. Stamps of a failed stream are kept for diagnosis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.model.observation import (
    Completed,
    EventKind,
    Failed,
    FailureKind,
    Outcome,
    RawRead,
    StreamEvent,
    Usage,
)
from harness.wire.chunks import Chunk, ChunkError, error_words, read_chunk
from harness.wire.sse import SseDecoder, SseEvent

_ENDED_EARLY = frozenset({FailureKind.SHORT_STREAM, FailureKind.RESET})
"""Failures of the transport that cost nothing once `[DONE]` has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreted:
    """A whole stream. Stamps are monotonic ns of the read that completed the event; None = did not happen."""

    outcome: Outcome
    content: str
    reasoning: str
    tool_calls: tuple[Mapping[str, object], ...]
    finish_reason: str | None
    usage: Usage | None
    events: tuple[StreamEvent, ...]
    role_ns: int | None
    first_reasoning_ns: int | None
    first_content_ns: int | None
    last_content_ns: int | None
    finish_ns: int | None
    usage_ns: int | None
    done_ns: int | None
    coalesced_max: int
    """Most events (comments aside) that one read completed; 0 where there was none."""
    coalesced_reads: int
    """Reads that completed more than one content or reasoning event: their stamps are one stamp."""
    sim_missed: int | None = None
    sim_max_late_ns: int | None = None
    sim_time_scale: float | None = None


@dataclass(slots=True)
class _State:
    events: list[StreamEvent] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tools: dict[int, dict[str, Any]] = field(default_factory=dict)
    stamps: dict[str, int] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: Usage | None = None
    sim: Mapping[str, Any] | None = None
    failure: Failed | None = None
    done: bool = False


def interpret(reads: Sequence[RawRead], *, failure: Failed | None = None) -> Interpreted:
    """Decode the body reads of one response.

    Args:
        reads: in order; `data` holds body bytes only (HTTP framing removed), empty for reads without body.
            `StreamEvent.read_index` is the index into this sequence.
        failure: what the transport itself saw go wrong (reset, time-out, …), if anything.
    """
    state, decoder = _State(), SseDecoder()
    for index, read in enumerate(reads):
        for event in decoder.feed(read.data):
            _take(state, event, read, index)
    if decoder.error is not None and state.failure is None:
        state.failure = Failed(kind=FailureKind.BAD_UTF8, detail=decoder.error)
    return _result(state, _outcome(state, failure, decoder.unfinished()))


def _take(state: _State, event: SseEvent, read: RawRead, index: int) -> None:
    if event.comment:
        _record(state, "ping", read, index, text=event.data)
        return
    if event.name == "error":
        _fail(state, FailureKind.ERROR_EVENT, _error_event_words(event.data))
        _record(state, "error", read, index, text=event.data)
        return
    if event.data == "[DONE]":
        state.done = True
        state.stamps.setdefault("done", read.at_ns)
        _record(state, "done", read, index)
        return
    try:
        chunk = read_chunk(event.data)
    except ChunkError as broken:
        _fail(state, FailureKind.BAD_JSON, str(broken))
        _record(state, "error", read, index, text=event.data)
        return
    if state.done and chunk.error is None:
        _record(state, "empty", read, index)  # said after the end: shown, but part of nothing
        return
    _take_chunk(state, chunk, read, index)


def _take_chunk(state: _State, chunk: Chunk, read: RawRead, index: int) -> None:
    if chunk.error is not None:
        _fail(state, FailureKind.ERROR_EVENT, chunk.error)
    first = state.stamps.setdefault
    if chunk.role:
        first("role", read.at_ns)
    if chunk.reasoning:
        state.reasoning.append(chunk.reasoning)
        first("first_reasoning", read.at_ns)
    if chunk.content:
        state.content.append(chunk.content)
        first("first_content", read.at_ns)
        state.stamps["last_content"] = read.at_ns
    for delta in chunk.tool_deltas:
        _merge_tool(state.tools, delta)
    if chunk.finish_reason is not None:
        state.finish_reason = chunk.finish_reason
        first("finish", read.at_ns)
    if chunk.usage is not None:
        state.usage = chunk.usage
        state.stamps["usage"] = read.at_ns
    if chunk.sim is not None:
        state.sim = chunk.sim
    _record(
        state,
        _kind(chunk),
        read,
        index,
        text=chunk.content or chunk.reasoning or chunk.error,
        finish_reason=chunk.finish_reason,
        completion_tokens=chunk.usage.completion_tokens if chunk.usage else None,
    )


def _kind(chunk: Chunk) -> EventKind:
    """What a chunk counts as, when it is several things at once: the one that matters most for timing."""
    carried: tuple[tuple[EventKind, object], ...] = (
        ("error", chunk.error),
        ("content", chunk.content),
        ("reasoning", chunk.reasoning),
        ("tool", chunk.tool_deltas),
        ("finish", chunk.finish_reason),
        ("role", chunk.role),
        ("usage", chunk.usage),
        ("sim", chunk.sim),
    )
    return next((kind for kind, value in carried if value), "empty")


def _record(
    state: _State,
    kind: EventKind,
    read: RawRead,
    index: int,
    *,
    text: str | None = None,
    finish_reason: str | None = None,
    completion_tokens: int | None = None,
) -> None:
    state.events.append(
        StreamEvent(
            index=len(state.events),
            at_ns=read.at_ns,
            user_ns=read.user_ns,
            read_index=index,
            kind=kind,
            text=text,
            finish_reason=finish_reason,
            completion_tokens=completion_tokens,
        )
    )


def _fail(state: _State, kind: FailureKind, detail: str) -> None:
    if state.failure is None:
        state.failure = Failed(kind=kind, detail=detail)


def _error_event_words(data: str) -> str:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    return error_words(body.get("error", body)) if isinstance(body, dict) else data


def _merge_tool(tools: dict[int, dict[str, Any]], delta: Mapping[str, Any]) -> None:
    """Tool calls arrive in pieces: id, type and name once, the arguments text bit by bit, told apart by `index`."""
    call = tools.setdefault(delta.get("index", 0), {"id": None, "type": "function", "function": {}})
    call["id"] = delta.get("id") or call["id"]
    call["type"] = delta.get("type") or call["type"]
    function = delta.get("function")
    if isinstance(function, dict):
        into = call["function"]
        into["name"] = into.get("name", "") + (function.get("name") or "")
        into["arguments"] = into.get("arguments", "") + (function.get("arguments") or "")


def _outcome(state: _State, failure: Failed | None, unfinished: bytes | None) -> Outcome:
    if state.failure is not None:
        return state.failure
    if failure is not None and not (state.done and failure.kind in _ENDED_EARLY):
        return failure
    if not state.done:
        tail = f" in the middle of {unfinished[:200]!r}" if unfinished else ""
        return Failed(kind=FailureKind.SHORT_STREAM, detail=f"the stream ended before [DONE]{tail}")
    return _judge_finished(state)


def _judge_finished(state: _State) -> Outcome:
    """The stream reached `[DONE]`: is it a success, or does it only look like one?"""
    said_something = state.content or state.reasoning or state.tools
    if state.finish_reason is None and not said_something:
        return Failed(
            kind=FailureKind.EMPTY_SUCCESS,
            detail="[DONE] without content and without finish_reason: the engine gave up on the request silently",
        )
    if state.finish_reason is None:
        return Failed(kind=FailureKind.NO_FINISH, detail="[DONE] without finish_reason")
    if state.usage is None:
        return Failed(kind=FailureKind.NO_USAGE, detail="[DONE] without a usage object")
    return Completed(finish_reason=state.finish_reason)


def _result(state: _State, outcome: Outcome) -> Interpreted:
    stamps = state.stamps
    per_read = Counter(event.read_index for event in state.events if event.kind != "ping")
    sim = state.sim or {}
    return Interpreted(
        outcome=outcome,
        content="".join(state.content),
        reasoning="".join(state.reasoning),
        tool_calls=tuple(state.tools[index] for index in sorted(state.tools)),
        finish_reason=state.finish_reason,
        usage=state.usage,
        events=tuple(state.events),
        role_ns=stamps.get("role"),
        first_reasoning_ns=stamps.get("first_reasoning"),
        first_content_ns=stamps.get("first_content"),
        last_content_ns=stamps.get("last_content"),
        finish_ns=stamps.get("finish"),
        usage_ns=stamps.get("usage"),
        done_ns=stamps.get("done"),
        coalesced_max=max(per_read.values(), default=0),
        coalesced_reads=count_coalesced(state.events),
        sim_missed=_whole(sim.get("missed")),
        sim_max_late_ns=_whole(sim.get("max_late_ns")),
        sim_time_scale=sim.get("time_scale"),
    )


def count_coalesced(events: Iterable[StreamEvent]) -> int:
    """Reads that completed more than one content or reasoning event."""
    shared = Counter(event.read_index for event in events if event.kind in ("content", "reasoning"))
    return sum(1 for count in shared.values() if count > 1)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
