"""`/v1/chat/completions` and `/v1/completions` of a replica."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.sim import api_request
from harness.sim.api_request import ApiError, ApiRequest
from harness.sim.api_response import Shape, error_event
from harness.sim.clock import Clock
from harness.sim.engine import Engine
from harness.sim.event_stream import CONTENT_TYPE, EventStream, Tolerance
from harness.sim.faults import ActiveFaults, Facts, FaultBook
from harness.sim.generation import Sampling
from harness.sim.http_server import Request, Response
from harness.sim.job import EngineDeadError, Job, LoadFailureError
from harness.sim.prompts import Prompts
from harness.sim.replica_metrics import ReplicaExposition
from harness.sim.reply import Reply
from harness.sim.settings import ReplicaSettings
from harness.sim.stamps import StampLog
from harness.sim.turnstile import Turnstile

JSON = "application/json"
SCALE_HEADER = "x-kvabba-time-scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a replica is made of."""

    model: str
    settings: ReplicaSettings
    prompts: Prompts
    engine: Engine
    exposition: ReplicaExposition
    clock: Clock
    stamps: StampLog
    book: FaultBook
    exit: Callable[[int], None]


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request under way: its job, and the response it writes to."""

    request: Request
    response: Response
    job: Job
    reply: Reply
    stream: EventStream | None


class GenerateApi:
    """Generation requests from validation to the last byte."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._engine = parts.engine
        self._settings = parts.settings
        self._unseen = parts.settings.warmup_requests
        self._turnstile = Turnstile()

    async def chat(self, request: Request, response: Response) -> None:
        """A chat completion."""
        self._check_alive()
        await self._turnstile.wait()
        await self._generate(request, response, api_request.parse_chat(request.body))

    async def completion(self, request: Request, response: Response) -> None:
        """A completion of text or token ids."""
        self._check_alive()
        await self._turnstile.wait()
        await self._generate(request, response, api_request.parse_completion(request.body))

    def check_model(self, model: str) -> None:
        """Refuse a model that is not served."""
        if model and model != self._parts.model:
            raise ApiError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")

    def _check_alive(self) -> None:
        if self._engine.dead:
            raise EngineDeadError("engine is dead")

    async def _generate(self, request: Request, response: Response, api: ApiRequest) -> None:
        self.check_model(api.model)
        scale = self._scale(request)
        await self._turnstile.wait()
        text, prompt = await self._parts.prompts.of(api)
        await self._turnstile.wait()
        sampling = self._fit(api, len(prompt))
        request_id = request.headers.get("x-request-id") or secrets.token_hex(8)
        facts = Facts(salt=api.salt, text=text, request_id=request_id)
        faults = self._select(facts)
        if not await self._before_headers(response, faults):
            return
        stream = self._open_stream(response, api, request, request_id, faults)
        ids = prompt.tolist() if api.return_token_ids else None
        shape = Shape(
            chat=api.messages is not None,
            model=self._parts.model,
            return_token_ids=api.return_token_ids,
            prompt_ids=ids,
        )
        reply = Reply(api, shape, self._settings, faults, stream)
        job = Job(
            key=self._engine.next_key(),
            prompt=prompt,
            facts=facts,
            sampling=sampling,
            faults=faults,
            arrival_ns=request.arrival_ns,
            scale=scale,
            on_token=reply.on_token,
        )
        if "role_early" in faults:
            reply.role(job, None)
        await self._run(Exchange(request=request, response=response, job=job, reply=reply, stream=stream))

    async def _run(self, x: Exchange) -> None:
        """Drive a job to its end, or until the client hangs up."""
        try:
            if await self._finishes(x):
                await self._engine.stores_begun(x.job)
                if x.stream is None:
                    x.response.send(200, x.reply.body(x.job), JSON)
                else:
                    await x.reply.complete(x.job)
        except LoadFailureError:
            await self._load_failed(x)
        except EngineDeadError:
            if x.stream is None:
                raise
            await x.reply.engine_died()
        finally:
            self._engine.end_response(x.job)
            if "restart" in x.job.faults:
                self._engine.restart()
                self._parts.exposition.restarted(time.time())
            self._parts.stamps.flush(idle=not self._engine.gauges().running)

    async def _finishes(self, x: Exchange) -> bool:
        """Whether the job ran to its end; False where the client left first. Raises what ended it early."""
        running = asyncio.ensure_future(self._engine.run_job(x.job))
        gone = asyncio.ensure_future(x.request.closed.wait())
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                return True
            self._engine.cancel(x.job)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineDeadError, LoadFailureError):
                await running
            return False
        finally:
            gone.cancel()

    async def _load_failed(self, x: Exchange) -> None:
        if x.stream is None:
            x.response.send(500, error_event(), JSON)
        else:
            await x.reply.load_failed(x.job)
        fault = x.job.faults.get("load_failure")
        after = self._settings.after_load_failure if fault is None else fault.text("then")
        if after == "exit":
            self._parts.exit(1)

    async def _before_headers(self, response: Response, faults: ActiveFaults) -> bool:
        """Faults that act before the headers; whether the request goes on."""
        if slow := faults.get("slow_headers"):
            await asyncio.sleep(slow.number("delay_s"))
        drop = faults.get("drop_connection")
        if drop is not None and drop.count("after") == 0:
            response.close(reset=True)
            return False
        return True

    def _open_stream(
        self, response: Response, api: ApiRequest, request: Request, request_id: str, faults: ActiveFaults
    ) -> EventStream | None:
        if not api.stream:
            return None
        response.start_stream(200, CONTENT_TYPE, {"x-request-id": request_id})
        return EventStream(
            response,
            self._parts.clock,
            self._parts.stamps,
            request_id=request_id,
            faults=faults,
            tolerance=Tolerance(
                floor_ns=round(self._settings.late_tolerance_s * 1e9),
                share=self._settings.late_tolerance_share,
                arrival_ns=request.arrival_ns,
            ),
        )

    def _select(self, facts: Facts) -> ActiveFaults:
        if self._unseen > 0:
            self._unseen -= 1
            return ActiveFaults([])
        return self._parts.book.select(facts)

    def _scale(self, request: Request) -> float:
        given = request.headers.get(SCALE_HEADER)
        if given is None:
            return self._settings.time_scale
        try:
            scale = float(given)
        except ValueError:
            scale = 0.0
        if not 0 < scale <= 1000:
            raise ApiError(400, f"{SCALE_HEADER} must be a number above 0")
        return scale

    def _fit(self, api: ApiRequest, size: int) -> Sampling:
        """The sampling parameters with a maximum that the context can hold."""
        most, limit = api.sampling.max_tokens, self._settings.max_model_len
        if size + max(1, most) > limit:
            raise ApiError(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {most} output tokens "
                f"and your prompt contains {size} input tokens, for a total of {size + most} tokens. "
                "Please reduce the length of the input prompt or the number of requested output tokens.",
                param="input_tokens",
            )
        return api.sampling if most else replace(api.sampling, max_tokens=limit - size)
