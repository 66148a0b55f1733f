"""Pre-rendered streams at exact times: a yardstick for clients, not a simulated engine.

Every byte of a response is rendered before its first deadline; at a deadline there is only a write. The emitter
reports its own lateness, so that a benchmark can tell when the emitter was the bottleneck and not the client.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from prometheus_client import CollectorRegistry, Counter, ProcessCollector, generate_latest

from harness.sim import VERSION, api_request
from harness.sim.api_request import ApiError
from harness.sim.api_response import Piece, Shape, Usage
from harness.sim.clock import Clock
from harness.sim.event_stream import CONTENT_TYPE
from harness.sim.http_server import Request, Response
from harness.sim.stamps import StampLog

JSON = "application/json"
MODEL = "emitter"
DEFAULT_RATE = 50.0
DEFAULT_TTFT_MS = 20.0


@dataclass(frozen=True, slots=True)
class Event:
    """One pre-rendered event and its deadline."""

    kind: str
    data: bytes
    due_ns: int


@dataclass(slots=True)
class Lateness:
    """Lateness of writes in ns."""

    values: list[int] = field(default_factory=list)

    def summary(self) -> dict[str, int]:
        """Count, maximum, 99th percentile and median in ns."""
        if not self.values:
            return {"events": 0, "max_late_ns": 0, "p99_late_ns": 0, "p50_late_ns": 0}
        late = np.array(self.values, dtype=np.int64)
        p99, p50 = np.percentile(late, [99, 50], method="higher")
        return {"events": len(late), "max_late_ns": int(late.max()), "p99_late_ns": int(p99), "p50_late_ns": int(p50)}


def frame(payload: bytes) -> bytes:
    """An SSE event."""
    return b"data: " + payload + b"\n\n"


def plan_events(shape: Shape, *, tokens: int, first_ns: int, gap_ns: int) -> list[Event]:
    """Role chunk and `tokens` content chunks, the last with the finish reason; deadlines `gap_ns` apart."""
    events = [Event("role", frame(shape.role()), first_ns)] if shape.chat else []
    middle = frame(shape.delta(Piece(text=" word", token_ids=[1])))
    last = frame(shape.delta(Piece(text=" word", token_ids=[1], finish="length")))
    for i in range(tokens):
        final = i == tokens - 1
        kind, data = ("content+finish", last) if final else ("content", middle)
        events.append(Event(kind, data, first_ns + i * gap_ns))
    return events


class Emitter:
    """Routes of the emitter."""

    def __init__(self, clock: Clock, stamps: StampLog) -> None:
        self._clock = clock
        self._stamps = stamps
        self._all = Lateness()
        self._running = 0
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._generated = Counter(
            "vllm:generation_tokens", "Tokens emitted.", ["engine", "model_name"], registry=self._registry
        ).labels("0", MODEL)
        self._routes: dict[tuple[str, str], Callable[[Request, Response], Awaitable[None]]] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
            ("GET", "/emitter-report"): self._report,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/tokenize"): self._tokenize,
        }

    async def handle(self, request: Request, response: Response) -> None:
        """Route one request."""
        fixed: dict[str, Any] = {
            "/health": {},
            "/version": {"version": VERSION},
            "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 1_000_000}]},
        }
        route = self._routes.get((request.method, request.path))
        try:
            if route is not None:
                await route(request, response)
            elif request.method == "GET" and request.path in fixed:
                response.send(200, orjson.dumps(fixed[request.path]), JSON)
            else:
                response.send(404, b'{"detail":"Not Found"}', JSON)
        except ApiError as error:
            response.send(error.status, orjson.dumps(error.body), JSON)

    async def _chat(self, request: Request, response: Response) -> None:
        await self._emit(request, response, chat=True)

    async def _completion(self, request: Request, response: Response) -> None:
        await self._emit(request, response, chat=False)

    async def _emit(self, request: Request, response: Response, *, chat: bool) -> None:
        api = api_request.parse_chat(request.body) if chat else api_request.parse_completion(request.body)
        tokens = api.sampling.max_tokens or 16
        rate, ttft = _number(request, "x-emit-rate", DEFAULT_RATE), _number(request, "x-emit-ttft-ms", DEFAULT_TTFT_MS)
        shape = Shape(chat=chat, model=api.model or MODEL)
        first = request.arrival_ns + round(ttft * 1e6)
        events = plan_events(shape, tokens=tokens, first_ns=first, gap_ns=round(1e9 / rate))
        usage = Usage(prompt=max(1, len(request.body) // 4), completion=tokens, cached=0, created_cache=0)
        if not api.stream:
            await self._clock.until(events[-1].due_ns)
            response.send(200, shape.body([Piece(text=" word" * tokens, token_ids=[1], finish="length")], usage), JSON)
            return
        request_id = request.headers.get("x-request-id") or secrets.token_hex(8)
        response.start_stream(200, CONTENT_TYPE, {"x-request-id": request_id})
        own = Lateness()
        self._running += 1
        try:
            await self._play(request, response, events, request_id, own)
        finally:
            self._running -= 1
            self._all.values += own.values
            self._generated.inc(len(own.values) - 1)
            self._stamps.flush(idle=self._running == 0)
        if not request.closed.is_set():
            self._close(response, request_id, shape, usage, own)

    async def _play(
        self, request: Request, response: Response, events: list[Event], request_id: str, own: Lateness
    ) -> None:
        """Write every event at its deadline; each alarm sets the next, so no task switch lies between."""
        done = asyncio.Event()
        position = 0

        def write_due() -> None:
            nonlocal position
            while position < len(events) and events[position].due_ns <= self._clock.now():
                event = events[position]
                now = self._stamps.add(request_id, position, event.kind, event.due_ns)
                response.chunk(event.data)
                own.values.append(now - event.due_ns)
                position += 1
            if position == len(events) or request.closed.is_set():
                done.set()
            else:
                self._clock.call_at(events[position].due_ns, write_due)

        self._clock.call_at(events[0].due_ns, write_due)
        await done.wait()

    def _close(self, response: Response, request_id: str, shape: Shape, usage: Usage, own: Lateness) -> None:
        told = Usage(
            prompt=usage.prompt, completion=usage.completion, cached=0, created_cache=0, sim={"emitter": own.summary()}
        )
        count = len(own.values)
        self._stamps.add(request_id, count, "usage", None)
        response.chunk(frame(shape.usage(told)))
        self._stamps.add(request_id, count + 1, "done", None)
        response.chunk(frame(b"[DONE]"))
        response.end_stream()

    async def _report(self, request: Request, response: Response) -> None:
        body = {**self._all.summary(), "running": self._running}
        if request.query.get("reset"):
            self._all = Lateness()
        response.send(200, orjson.dumps(body), JSON)

    async def _metrics(self, _: Request, response: Response) -> None:
        response.send(200, generate_latest(self._registry), "text/plain; version=0.0.4; charset=utf-8")

    async def _tokenize(self, request: Request, response: Response) -> None:
        data = api_request.parse_object(request.body)
        text = data.get("prompt") or "".join(str(m.get("content")) for m in data.get("messages") or [])
        count = max(1, len(text) // 4)
        body = {"count": count, "max_model_len": 1_000_000, "tokens": [1] * count, "token_strs": None}
        response.send(200, orjson.dumps(body), JSON)


def _number(request: Request, header: str, default: float) -> float:
    try:
        value = float(request.headers.get(header, default))
    except ValueError:
        value = 0.0
    if not value > 0:
        raise ApiError(400, f"{header} must be a number above 0")
    return value
