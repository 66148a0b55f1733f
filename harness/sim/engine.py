"""The replica's engine: admission, recovery, stepping on the clock, and what is counted when.

Strategy: `scheduler` knows the timeline, `blocks` the pages, `tier` the second cache; this module moves requests
between them. Everything that decides what a request hits happens in one place (`_admit`), without awaiting, so that
concurrent requests see each other's pages in a definite order. Tokens are handed to the response synchronously at the
end of a step: nothing stands between a deadline and its write.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np

from harness.sim import recording, recovery
from harness.sim.blocks import BlockPool, Tokens, chain_hashes
from harness.sim.clock import LEAD_NS, Clock
from harness.sim.generation import Planner, Source
from harness.sim.job import EngineDeadError, Job, LoadFailureError
from harness.sim.replica_counters import CounterBoard
from harness.sim.replica_metrics import Gauges
from harness.sim.scheduler import Scheduler, Sequence, Step
from harness.sim.settings import ReplicaSettings
from harness.sim.tier import Loaded, LoadFailedError, StorePiece, Tier
from harness.sim.tokens import Tokenizer

T = TypeVar("T")


class Engine:
    """All requests of one replica."""

    def __init__(
        self, settings: ReplicaSettings, tokenizer: Tokenizer, tier: Tier | None, clock: Clock, board: CounterBoard
    ) -> None:
        self.settings = settings
        self.tier = tier
        self.board = board
        self.pool = BlockPool(settings.num_gpu_blocks, settings.block_size)
        self.dead = False
        self.on_death: Callable[[], None] = lambda: None
        self._tokenizer = tokenizer
        self._planner = Planner(tokenizer, settings)
        self._clock = clock
        self._external_skips_local = settings.external_queries_count == "n_minus_local"
        self._scheduler = Scheduler(settings.time, token_budget=settings.max_num_batched_tokens)
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._keys = itertools.count(1)
        self._wake = asyncio.Event()
        self._background: set[asyncio.Task[Any]] = set()

    def next_key(self) -> int:
        """A number for a new job."""
        return next(self._keys)

    def gauges(self) -> Gauges:
        """Levels of the moment."""
        return Gauges(running=len(self._running), waiting=len(self._waiting), usage=self.pool.usage)

    @property
    def busy(self) -> bool:
        """Whether pages are held; unfinished stores hold them too."""
        return bool(self._running or self._waiting or self._background)

    async def run_job(self, job: Job) -> None:
        """Take a request from look-up to its last token; raises what ended it early."""
        if self.dead:
            raise EngineDeadError("engine is dead")
        job.hash_blocks(self.settings.block_size)
        if self.tier is not None:
            job.lease = await self.tier.lookup(job.prompt, job.facts, job.faults)
        if self.dead:
            raise EngineDeadError("engine is dead")
        self._waiting.append(job)
        self._admit_waiting()
        await job.finished

    def cancel(self, job: Job) -> None:
        """The client has gone: free the slot and the pages."""
        if job.closed:
            return
        self.board.now.success["abort"] += 1
        self.board.changed()
        self._close(job)
        self._admit_waiting()

    def end_response(self, job: Job) -> None:
        """The response has been sent: stores may complete now, where they do not do so by themselves."""
        if self.tier is not None and not self.tier.stores_early:
            for store in job.stores:
                self._spawn(self._finish_store(store, job.scale))
        job.stores = []

    async def stores_begun(self, job: Job) -> None:
        """Wait until the second tier knows of this request's stores, so that a drain barrier can see them."""
        for store in job.stores:
            await asyncio.wait([store])

    def reset(self) -> bool:
        """Forget every page; False while any is held."""
        return not self.busy and self.pool.reset()

    def restart(self) -> None:
        """Counters and pages as after a restart."""
        self.pool.evict_free()
        self.board.restart()

    def die(self) -> None:
        """The engine is gone: every request fails."""
        self.dead = True
        for job in [*self._running.values(), *self._waiting]:
            self._close(job)
            job.fail(EngineDeadError("engine is dead"))
        self.on_death()

    async def run(self) -> None:
        """Step for ever."""
        while True:
            self._wake.clear()
            start = self._scheduler.next_start()
            if start is None:
                await self._wake.wait()
            elif start > self._clock.now():
                # Somebody who is ready earlier may still arrive: plan only when the step begins.
                alarm = self._clock.call_at(start, self._wake.set)
                await self._wake.wait()
                alarm.cancel()
            elif (step := self._scheduler.plan()) is not None:
                lead = min(LEAD_NS, (step.end_ns - step.start_ns) // 3)
                await self._clock.until(step.end_ns - lead)
                self._apply(step)

    # -- admission -----------------------------------------------------------------------------------------

    def _admit_waiting(self) -> None:
        while self._waiting and not self.dead:
            if not self._admit(self._waiting[0]):
                for job in self._waiting:
                    job.waited = True
                return

    def _admit(self, job: Job) -> bool:
        """Look up, hold pages, count; False where no slot or too few pages are free."""
        if len(self._running) >= self.settings.max_num_seqs:
            return False
        if evict := job.faults.get("evict"):
            self.pool.evict_free(evict.count("count") or None)
        hits = self.pool.match(job.hashes, job.size)
        allocation = self.pool.allocate(hits, job.size + job.sampling.bound(self.settings))
        if allocation is None:
            return False
        self._waiting.remove(job)
        self._running[job.key] = job
        job.allocation, job.filled = allocation, len(hits)
        chunk_size = None if self.tier is None else self.tier.chunk_size
        recovery.assign_hits(job, pages=allocation.hit_tokens, chunk_size=chunk_size)
        job.admitted_ns = self._clock.now()
        counted = self.tier is not None or job.external > 0
        recording.admitted(self.board.now, job, external=counted, local_off=self._external_skips_local)
        self.board.changed()
        if self.tier is not None and not job.loadable:
            self._spawn(self.tier.release(job.lease))
        if job.loadable or "load_failure" in job.faults:
            job.loading = self._spawn(self._load(job))
        else:
            self._start(job, None)
        return True

    async def _load(self, job: Job) -> None:
        """Bring in what the tier promised; a failed load ends request and engine, unless told otherwise."""
        failing = job.faults.get("load_failure")
        if failing is not None and (job.external > 0 or failing.get("force")):
            await self._clock.until(job.ready_ns(self.settings.time, connector=self.tier is not None))
            self._fail_load(job)
            return
        loaded: Loaded | None = None
        if self.tier is not None and job.loadable:
            try:
                first = recovery.first_chunk(job, self.tier.chunk_size)
                loaded = await self.tier.load(job.lease, first, job.faults)
            except LoadFailedError:
                if self.settings.on_load_failure == "fail":
                    self._fail_load(job)
                    return
                job.external = job.loadable = 0
            self._spawn(self.tier.release(job.lease))
        self._start(job, loaded)

    def _fail_load(self, job: Job) -> None:
        recording.load_failed(self.board.now, job)
        self.board.changed()
        self._close(job)
        job.fail(LoadFailureError("KV load failure"))
        self.die()

    def _start(self, job: Job, loaded: Loaded | None) -> None:
        """Content is recovered: plan the output and hand the sequence to the scheduler."""
        if job.closed:
            return
        chunk_size = 0 if self.tier is None else self.tier.chunk_size
        job.recovered = recovery.recover(job, loaded, chunk_size, self._tokenizer)
        self._fill(job, job.recovered, job.hashes, job.cached)
        source = Source(
            text=self._text(job, job.recovered),
            reused=job.cached > 0,
            connector=self.tier is not None,
            faults=job.faults,
        )
        job.output = self._planner.plan(job.sampling, source)
        outputs = len(job.output.tokens)
        ready = job.ready_ns(self.settings.time, connector=self.tier is not None)
        job.sequence = Sequence(job.key, job.size, job.cached, outputs, ready, job.scale)
        self._scheduler.add(job.sequence)
        self._wake.set()

    def _text(self, job: Job, content: Tokens) -> bytes:
        """The recovered content as bytes. Where every token came back as it was sent, its text is known.

        Decoding a long prompt anew takes a millisecond in which no other stream gets its tokens.
        """
        if job.facts.text and self._tokenizer.lossless and np.array_equal(content, job.prompt):
            return job.facts.text.encode()
        return self._tokenizer.decode_bytes(content)

    def _fill(self, job: Job, content: Tokens, hashes: list[bytes], computed: int, *, begin: int = 0) -> None:
        """Every page that is now full can be hit by others. `content` holds the tokens from number `begin` on."""
        size = self.settings.block_size
        for position in range(job.filled, computed // size):
            piece = content[position * size - begin : (position + 1) * size - begin].copy()
            self.pool.fill(job.allocation, position, hashes[position], piece)
            job.filled = position + 1

    # -- stepping ------------------------------------------------------------------------------------------

    def _apply(self, step: Step) -> None:
        emitted = self._scheduler.complete(step)
        self.board.now.observe("iteration_tokens_total", step.tokens)
        for seq, _ in step.prefills:
            job = self._running.get(seq.key)
            if job is not None and job.recovered is not None:
                self._fill(job, job.recovered, job.hashes, seq.cached + seq.computed)
        for seq in emitted:
            job = self._running.get(seq.key)
            if job is not None:
                self._emit(job, seq, step.end_ns)
        self._admit_waiting()

    def _emit(self, job: Job, seq: Sequence, due_ns: int) -> None:
        """Count first, write second: the client must find counted what it has been told."""
        recording.token(self.board.now, job, self._clock.now(), first=seq.produced == 1)
        if seq.produced == 1:
            self._begin_store(job, job.prompt, job.recovered, job.lease.chunks, job.lease.digests)
        if seq.done:
            recording.finished(self.board.now, job)
            self._keep_generated(job)
            self._close(job)
        self.board.changed()
        job.on_token(job, seq.produced - 1, due_ns)
        if seq.done and not job.finished.done():
            job.finished.set_result(None)

    def _begin_store(
        self, job: Job, ids: Tokens, content: Tokens | None, first: int, digests: list[str] | None = None
    ) -> None:
        if self.tier is not None and content is not None:
            piece = StorePiece(ids, content, first, digests or [])
            store = self._spawn(self.tier.begin_store(piece, job.facts, job.faults))
            job.stores.append(store)
            if self.tier.stores_early:
                self._spawn(self._finish_store(store, job.scale))

    async def _finish_store(self, store: asyncio.Task[int | None], scale: float) -> None:
        handle = await store
        if handle is not None and self.tier is not None:
            await self.tier.finish_store(handle, scale)

    def _keep_generated(self, job: Job) -> None:
        """Pages (and chunks) that generated tokens filled; the last token's state was never computed."""
        size, tail = self.settings.block_size, job.size // self.settings.block_size * self.settings.block_size
        if job.recovered is None:
            return
        # Only behind the last full page: joining a whole long prompt would make the last token late.
        generated = np.array(job.planned.tokens[:-1], dtype=np.int32)
        ids = np.concatenate([job.prompt[tail:], generated])
        if len(ids) >= size:
            hashes = job.hashes + chain_hashes(ids, size, job.hashes[-1] if job.hashes else job.root)
            content = np.concatenate([job.recovered[tail:], generated])
            self._fill(job, content, hashes, tail + len(ids), begin=tail)
        if self.tier is not None and self.tier.store_generated:
            whole = np.concatenate([job.prompt, generated]), np.concatenate([job.recovered, generated])
            self._begin_store(job, *whole, job.size // self.tier.chunk_size)

    def _close(self, job: Job) -> None:
        """Take a request out of everything and free its pages."""
        job.closed = True
        self._scheduler.remove(job.key)
        self._running.pop(job.key, None)
        if job in self._waiting:
            self._waiting.remove(job)
        if job.loading is not None and job.loading is not asyncio.current_task() and not job.loading.done():
            job.loading.cancel()
            if self.tier is not None:
                self._spawn(self.tier.release(job.lease))
        self.pool.release(job.allocation)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[Any]) -> None:
        """A background task that broke is an engine that broke: no request may wait for it for ever."""
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logging.getLogger("sim").error("engine failed: %s: %s", type(error).__name__, error)
            self.die()
