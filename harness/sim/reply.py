"""From tokens to the response of one request: grouping into deltas, and the faults that act on the stream."""

from __future__ import annotations

import secrets
from dataclasses import replace

from harness.sim.api_request import ApiRequest
from harness.sim.api_response import Piece, Shape, Usage, error_event
from harness.sim.event_stream import EventStream
from harness.sim.faults import ActiveFaults
from harness.sim.job import Job
from harness.sim.settings import ReplicaSettings

DONE = b"[DONE]"


class Reply:
    """Collects tokens into pieces; where the request streams, each piece leaves at once."""

    def __init__(
        self, api: ApiRequest, shape: Shape, settings: ReplicaSettings, faults: ActiveFaults, stream: EventStream | None
    ) -> None:
        self._api = api
        self._shape = shape
        self._settings = settings
        self._faults = faults
        self._stream = stream
        self._call_id = f"chatcmpl-tool-{secrets.token_hex(8)}"
        self._pending: list[int] = []
        self._started = False
        self._tool_named = False
        self.pieces: list[Piece] = []

    def usage(self, job: Job, produced: int) -> Usage:
        """Token counts after `produced` output tokens."""
        wrong = self._faults.get("wrong_prompt_tokens")
        stream, size = self._stream, self._settings.block_size
        late = (
            {"missed": 0, "max_late_ns": 0}
            if stream is None
            else {
                "missed": stream.missed,
                "max_late_ns": stream.max_late_ns,
            }
        )
        return Usage(
            prompt=job.size + (0 if wrong is None else wrong.count("delta")),
            completion=produced,
            cached=job.cached,
            created_cache=max(0, job.size // size * size - job.cached),
            sim={**late, "time_scale": job.scale},
        )

    def role(self, job: Job, due_ns: int | None) -> None:
        """The role chunk, once."""
        if self._started or self._stream is None:
            return
        self._started = True
        if self._api.messages is not None:
            usage = self.usage(job, 0) if self._api.continuous_usage else None
            self._stream.send("role", self._shape.role(usage), due_ns)

    def on_token(self, job: Job, index: int, due_ns: int) -> None:
        """Token `index` of the planned output is due."""
        self._break_before(len(self.pieces))
        self.role(job, due_ns)
        output = job.planned
        self._pending.append(index)
        last = index == len(output.tokens) - 1
        if last:
            self._end(job, due_ns)
        elif self._flushes(job, index):
            self._flush(job, due_ns, finish=None)

    def _flushes(self, job: Job, index: int) -> bool:
        """Whether a delta leaves now: it is full, has text, and need not wait for the finish reason."""
        output = job.planned
        turns = index + 1 == output.reasoning
        ends_next = index == len(output.tokens) - 2 and not output.pieces[-1]
        if ends_next and self._settings.finish == "with_content":
            return False
        full = len(self._pending) >= self._settings.tokens_per_chunk or turns or ends_next
        return full and any(output.pieces[i] for i in self._pending)

    def _end(self, job: Job, due_ns: int) -> None:
        output = job.planned
        if self._settings.finish == "own_chunk" and any(output.pieces[i] for i in self._pending):
            self._flush(job, due_ns, finish=None)
        self._flush(job, due_ns, finish=output.finish)

    def _flush(self, job: Job, due_ns: int, *, finish: str | None) -> None:
        output, indices = job.planned, self._pending
        self._pending = []
        thinking = bool(indices) and indices[0] < output.reasoning
        piece = Piece(
            text="".join(output.pieces[i] for i in indices),
            token_ids=[output.tokens[i] for i in indices],
            reasoning_field=self._settings.reasoning_field if thinking else None,
            tool=None if thinking else self._tool(),
            finish=None if "no_finish" in self._faults else finish,
            stop_reason=output.stop_reason if finish else None,
        )
        self._break_before(len(self.pieces))
        self.pieces.append(piece)
        if self._stream is not None:
            produced = (indices[-1] + 1) if indices else len(output.tokens)
            usage = self.usage(job, produced) if self._api.continuous_usage else None
            kind = "reasoning" if thinking else "content"
            self._stream.send(kind if finish is None else f"{kind}+finish", self._shape.delta(piece, usage), due_ns)

    def _tool(self) -> tuple[str, str | None] | None:
        name = self._api.sampling.forced_tool
        if name is None:
            return None
        shown = None if self._tool_named else name
        self._tool_named = True
        return self._call_id, shown

    def _break_before(self, deltas: int) -> None:
        """Apply a fault that ends the stream once `deltas` deltas have been sent."""
        stream = self._stream
        if stream is None or stream.ended:
            return
        if (error := self._faults.get("error_event")) and deltas >= error.count("after"):
            name = "error" if error.text("style") == "event" else None
            stream.send("error", error_event("simulated error", error.count("code")), name=name)
            stream.send("done", DONE)
            stream.end()
        elif (short := self._faults.get("short_stream")) and deltas >= short.count("after"):
            if short.text("mode") == "cut":
                stream.cut(self._shape.delta(Piece(text="cut", token_ids=[0])))
            else:
                stream.end()
        elif (drop := self._faults.get("drop_connection")) and deltas >= drop.count("after"):
            stream.reset()

    async def complete(self, job: Job) -> None:
        """Usage and `[DONE]` after the last token."""
        stream = self._stream
        if stream is None:
            return
        if self._api.include_usage and "no_usage" not in self._faults:
            stream.send("usage", self._shape.usage(self.usage(job, len(job.planned.tokens))))
        if "no_done" not in self._faults:
            stream.send("done", DONE)
        await stream.drain()
        stream.end()

    async def load_failed(self, job: Job) -> None:
        """What a failed load looks like: 200, role, an empty usage, `[DONE]` and no finish reason."""
        stream = self._stream
        if stream is None:
            return
        self.role(job, None)
        if self._api.include_usage:
            empty = replace(self.usage(job, 0), cached=0, created_cache=0)
            stream.send("usage", self._shape.usage(empty))
        stream.send("done", DONE)
        await stream.drain()
        stream.end()

    async def engine_died(self) -> None:
        """The engine ended under a running stream."""
        if self._stream is not None:
            self._stream.send("error", error_event())
            self._stream.send("done", DONE)
            await self._stream.drain()
            self._stream.end()

    def body(self, job: Job) -> bytes:
        """The whole response of a request that does not stream."""
        return self._shape.body(self.pieces, self.usage(job, len(job.planned.tokens)))
