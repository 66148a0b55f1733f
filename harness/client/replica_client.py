"""`open_client` and `ReplicaClient.send`: one call to one named replica → one Observation.

`send` = `exchange` (the window: raw reads only) + `observe` (decoding). A runner that keeps several requests in flight
calls `exchange` for all of them and `observe` when the last has ended, so that no decoding falls into a window.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx

from harness.client.exchange import Exchange
from harness.client.observe import observation_of
from harness.client.plain import plain_transport, send_plain
from harness.client.reader import stamps_available
from harness.client.settings import Call, ClientSettings
from harness.client.transport import StampingTransport
from harness.client.window import Window, steal_ns
from harness.model.errors import EngineError
from harness.model.observation import ClientHealth, FailureKind, Observation

_SPIN_NS = 2_000_000
"""Timers of event loops have a resolution of 1 ms: the rest of a wait is spent yielding to the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResult:
    """What one call left behind, not decoded yet."""

    call: Call
    exchange: Exchange
    body_sha256: str
    health: ClientHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call that is ready to leave; it may leave once."""

    call: Call
    request: httpx.Request
    body_sha256: str


class ReplicaClient:
    """Sends calls; several at once if the caller wants. Made by `open_client`."""

    def __init__(self, settings: ClientSettings, via: StampingTransport | httpx.AsyncClient) -> None:
        self.settings = settings
        self._via = via
        self._window = Window(freeze_gc=settings.freeze_gc)

    async def send(self, call: Call) -> Observation:
        """Send and decode. Every failure is an Observation; only cancellation of the task is raised."""
        return self.observe(await self.exchange(call))

    def prepare(self, call: Call) -> Prepared:
        """What needs no server: headers, URL and the body's digest. For callers whose calls overlap."""
        return Prepared(call=call, request=self._request(call), body_sha256=hashlib.sha256(call.body).hexdigest())

    async def exchange(self, call: Call | Prepared) -> RawResult:
        """The window of one call: send, collect stamped reads, measure the client's own health."""
        prepared = call if isinstance(call, Prepared) else self.prepare(call)
        exchange, call, request = Exchange(), prepared.call, prepared.request
        await _until(call.due_ns)
        stolen = steal_ns()
        with self._window.open():
            frozen, called_ns = self._window.frozen, time.monotonic_ns()
            await self._drive(call, request, exchange)
            if exchange.start_ns is None:
                exchange.start_ns = called_ns  # failed before the transport began, e.g. an unknown URL scheme
            health = self._health(call, exchange)
        exchange.settle()
        health = replace(health, gc_frozen=frozen, cpu_steal_ns=_increase(stolen, steal_ns()))
        return RawResult(call=call, exchange=exchange, body_sha256=prepared.body_sha256, health=health)

    def observe(self, result: RawResult) -> Observation:
        """Decode a finished call."""
        return observation_of(
            result.exchange,
            replica=result.call.replica,
            url=result.call.url,
            body_sha256=result.body_sha256,
            request_id=result.call.request_id,
            health=result.health,
        )

    async def _drive(self, call: Call, request: httpx.Request, exchange: Exchange) -> None:
        limit = call.timeout_s if call.timeout_s is not None else self.settings.timeout_s
        watcher: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(limit) as scope:
                if call.cancel is not None:
                    watcher = asyncio.create_task(_trip(call.cancel, scope))
                await self._transfer(request, exchange)
        except TimeoutError:
            if call.cancel is not None and call.cancel.is_set():
                exchange.fail(FailureKind.CANCELLED, "cancelled by the caller")
            else:
                exchange.fail(FailureKind.TIMEOUT, f"no complete response within {limit} s")
        finally:
            if watcher is not None:
                watcher.cancel()

    async def _transfer(self, request: httpx.Request, exchange: Exchange) -> None:
        if isinstance(self._via, httpx.AsyncClient):
            await send_plain(self._via, request, exchange)
            return
        request.extensions["exchange"] = exchange
        try:
            await self._via.handle_async_request(request)
        except httpx.TransportError as failed:
            exchange.fail(FailureKind.RESET, repr(failed))  # the transport has said why before: first reason wins

    def _request(self, call: Call) -> httpx.Request:
        headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "connection": "close" if self.settings.connection == "new" else "keep-alive",
        }
        if call.request_id is not None:
            headers["x-request-id"] = call.request_id
        headers.update({name.lower(): value for name, value in call.headers.items()})
        return httpx.Request("POST", call.url.rstrip("/") + call.path, headers=headers, content=call.body)

    def _health(self, call: Call, exchange: Exchange) -> ClientHealth:
        start = exchange.start_ns or time.monotonic_ns()
        end = time.monotonic_ns()
        sent = exchange.sent_ns or end
        overdue = 0 if call.due_ns is None else max(0, start - call.due_ns)
        # a way out without waiting is pure client time, so all of it counts; else what the loop was late meanwhile
        on_the_way = self._window.lag_ns(start, sent) if exchange.waited else sent - start
        return ClientHealth(
            loop_lag_max_ns=self._window.lag_ns(start, end),
            late_send_ns=overdue + on_the_way,
            gc_pause_ns=self._window.gc_pause_ns(start, end),
        )


@asynccontextmanager
async def open_client(settings: ClientSettings) -> AsyncIterator[ReplicaClient]:
    """A client for as long as the context lasts; one event loop.

    Raises EngineError where kernel stamps are demanded and this machine has none.
    """
    if settings.transport == "httpx":
        async with httpx.AsyncClient(
            transport=plain_transport(settings),
            trust_env=False,
            timeout=httpx.Timeout(None, connect=settings.connect_timeout_s),
            follow_redirects=False,
        ) as http:
            yield ReplicaClient(settings, http)
    else:
        # httpx's client would add half a millisecond of cookies, redirects and URL merging to every request
        async with _stamping(settings) as transport:
            yield ReplicaClient(settings, transport)


def _stamping(settings: ClientSettings) -> StampingTransport:
    if settings.transport != "callback" and stamps_available():
        return StampingTransport(settings, stamps="kernel")
    if settings.transport == "kernel":
        raise EngineError(
            "this machine cannot stamp arrivals in the kernel", phase="client", hint="transport = auto or callback"
        )
    return StampingTransport(settings, stamps="callback")


async def _until(due_ns: int | None) -> None:
    if due_ns is None:
        return
    await asyncio.sleep(max(0, due_ns - time.monotonic_ns() - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < due_ns:  # noqa: ASYNC110 - a moment is awaited, not an event
        await asyncio.sleep(0)


async def _trip(cancel: asyncio.Event, scope: asyncio.Timeout) -> None:
    await cancel.wait()
    scope.reschedule(0)


def _increase(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
