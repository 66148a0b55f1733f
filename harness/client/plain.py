"""The declared fall-back: httpx's own transport. Stamps come after its HTTP parsing and are late by that much."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from harness.client.exchange import Exchange
from harness.client.settings import ClientSettings
from harness.model.observation import FailureKind


def plain_transport(settings: ClientSettings) -> httpx.AsyncHTTPTransport:
    """The transport of httpx: no proxy, no retry, keep-alive only where declared."""
    return httpx.AsyncHTTPTransport(
        verify=settings.ssl_context or True,
        trust_env=False,
        retries=0,
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=None if settings.connection == "reused" else 0
        ),
    )


async def send_plain(http: httpx.AsyncClient, request: httpx.Request, exchange: Exchange) -> None:
    """Send and read to the end, filling `exchange`. Failures end up in it; only cancellation is raised."""
    exchange.stamped_after_parsing = True
    request.extensions["trace"] = _tracer(exchange)
    exchange.begin()
    try:
        response = await http.send(request, stream=True)
        try:
            exchange.framing.status = response.status_code
            exchange.framing.headers = list(response.headers.raw)
            exchange.framing.headers_done = True
            async for piece in response.aiter_raw():
                exchange.add_body(time.monotonic_ns(), piece)
        finally:
            await response.aclose()
    except httpx.TransportError as failed:
        exchange.fail(_kind(failed, exchange), str(failed) or type(failed).__name__)
    else:
        exchange.complete_parsed()


def _tracer(exchange: Exchange) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    """Stamps from httpcore's own trace events (https://www.encode.io/httpcore/extensions/#trace)."""
    exchange.reused = True

    async def trace(name: str, _info: Mapping[str, Any]) -> None:
        now = time.monotonic_ns()
        if name == "connection.connect_tcp.started":
            exchange.reused = False
            exchange.connect_start_ns = now
        elif name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            exchange.connected_ns = now
        elif name == "http11.send_request_body.complete":
            exchange.sent_ns = now
        elif name == "http11.receive_response_headers.complete":
            exchange.parsed_headers_ns = now

    return trace


def _kind(error: httpx.TransportError, exchange: Exchange) -> FailureKind:
    match error:
        case httpx.ConnectTimeout():
            return FailureKind.CONNECT_TIMEOUT
        case httpx.ConnectError():
            return FailureKind.CONNECT_REFUSED
        case httpx.RemoteProtocolError():
            return _protocol_kind(str(error), exchange)
        case httpx.NetworkError():
            return FailureKind.RESET
        case _:
            return FailureKind.BAD_HTTP


def _protocol_kind(words: str, exchange: Exchange) -> FailureKind:
    """Httpcore reports an early end of the connection and broken HTTP with the same exception."""
    if exchange.framing.headers_done:
        return FailureKind.SHORT_STREAM if "closed connection" in words else FailureKind.BAD_HTTP
    return FailureKind.RESET if "disconnected" in words else FailureKind.BAD_HTTP
