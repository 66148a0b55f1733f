"""A finished exchange → the row's Observation. Runs after the window: decoding cannot move a stamp any more."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from harness.client.exchange import Exchange
from harness.model.observation import (
    ClientHealth,
    Failed,
    FailureKind,
    Observation,
    Outcome,
    RawRead,
    Stamps,
)
from harness.wire.chat import Interpreted, interpret
from harness.wire.chunks import error_words

_STREAM = "text/event-stream"
_WORDS = 500


def observation_of(
    exchange: Exchange,
    *,
    replica: str,
    url: str,
    body_sha256: str,
    request_id: str | None,
    health: ClientHealth,
) -> Observation:
    """Decode what was read and put everything that is known about the request together."""
    reads = exchange.raw_reads()
    refused = _refused(exchange)
    stream = interpret(reads if refused is None else (), failure=exchange.failure)
    return Observation(
        replica=replica,
        url=url,
        http_status=exchange.framing.status,
        stamps=_stamps(exchange, stream),
        stamp_source=exchange.stamp_source,
        outcome=refused or stream.outcome,
        usage=stream.usage,
        content=stream.content,
        reasoning=stream.reasoning,
        tool_calls=stream.tool_calls,
        events=stream.events,
        reads=exchange.read_sizes(),
        connection_reused=exchange.reused,
        body_sha256=body_sha256,
        health=_with_delays(health, exchange, stream, reads),
        sim_missed=stream.sim_missed,
        sim_max_late_ns=stream.sim_max_late_ns,
        request_id=request_id,
    )


def _refused(exchange: Exchange) -> Outcome | None:
    """Why there is no event stream to decode; None where there is one, or where nothing was answered at all."""
    status = exchange.framing.status
    if status is None:
        return exchange.failure
    if status != 200:
        return Failed(kind=FailureKind.HTTP_STATUS, detail=f"{status}: {_message(exchange.body())}")
    kind = exchange.framing.header(b"content-type") or "no content type"
    if kind.split(";")[0].strip().lower() != _STREAM:
        return Failed(kind=FailureKind.NOT_A_STREAM, detail=f"{kind}: {_message(exchange.body())}")
    return None


def _message(body: bytes) -> str:
    """The server's words: the message of an error object, else the beginning of the text."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:_WORDS].decode("utf-8", "backslashreplace").strip() or "empty body"
    if isinstance(parsed, dict):
        parsed = parsed.get("error") or parsed.get("detail") or parsed
    return error_words(parsed)[:_WORDS]


def _stamps(exchange: Exchange, stream: Interpreted) -> Stamps:
    return Stamps(
        start_ns=exchange.start_ns or 0,
        connect_start_ns=exchange.connect_start_ns,
        connected_ns=exchange.connected_ns,
        sent_ns=exchange.sent_ns,
        headers_ns=exchange.headers_ns,
        first_byte_ns=exchange.first_byte_ns,
        role_ns=stream.role_ns,
        first_reasoning_ns=stream.first_reasoning_ns,
        first_content_ns=stream.first_content_ns,
        last_content_ns=stream.last_content_ns,
        finish_ns=stream.finish_ns,
        usage_ns=stream.usage_ns,
        done_ns=stream.done_ns,
        end_ns=exchange.end_ns,
    )


def _with_delays(
    health: ClientHealth, exchange: Exchange, stream: Interpreted, reads: Sequence[RawRead]
) -> ClientHealth:
    """Add what only the reads can tell: how late the reader was behind the kernel, and merged events."""
    kernel = exchange.stamp_source == "kernel"
    first = next((event for event in stream.events if event.kind == "content"), None)
    return ClientHealth(
        loop_lag_max_ns=health.loop_lag_max_ns,
        late_send_ns=health.late_send_ns,
        gc_pause_ns=health.gc_pause_ns,
        gc_frozen=health.gc_frozen,
        cpu_steal_ns=health.cpu_steal_ns,
        kernel_delay_max_ns=max((read.user_ns - read.at_ns for read in reads), default=None) if kernel else None,
        kernel_delay_first_content_ns=first.user_ns - first.at_ns if kernel and first else None,
        coalesced_reads=stream.coalesced_reads,
        clock_step_ns=exchange.clock_step_ns,
    )
