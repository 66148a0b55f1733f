"""Starting and ending the simulator's processes: composition, signals, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from harness.sim import precision
from harness.sim.cache_app import CacheService
from harness.sim.chat_template import ChatTemplate, ChatTemplateError
from harness.sim.clock import Clock
from harness.sim.emitter import Emitter
from harness.sim.engine import Engine
from harness.sim.faults import FaultBook
from harness.sim.generate_api import Parts
from harness.sim.http_client import CacheUnreachableError
from harness.sim.http_server import Handler, Server
from harness.sim.prompts import Prompts
from harness.sim.replica_app import ReplicaApp
from harness.sim.replica_counters import CounterBoard
from harness.sim.replica_metrics import ReplicaCollector, ReplicaExposition, cache_config
from harness.sim.settings import CacheSettings, ReplicaSettings
from harness.sim.stamps import StampLog
from harness.sim.tier import NativeTier, RemoteTier, Tier
from harness.sim.tokens import Tokenizer

STUBBORN = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(float(sys.argv[1]))"
"""What the grandchild of `fork_child` runs."""
REGISTER_TRIES = 50
REGISTER_PAUSE_S = 0.1


def say(line: str) -> None:
    """One line on standard output, at once: whoever started the process reads the port from it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class StartError(RuntimeError):
    """The process cannot start; the message says why in one line."""


class Host:
    """One server in one event loop, until a signal or the program ends it."""

    def __init__(self, arguments: argparse.Namespace, book: FaultBook) -> None:
        self._host, self._port = arguments.host, arguments.port
        self.book = book
        self._ended = asyncio.Event()
        self.code = 0

    def exit(self, code: int) -> None:
        """End the process with this code."""
        self.code = code
        self._ended.set()

    def watch(self, task: asyncio.Task[None]) -> None:
        """End the process if this task, which has no end of its own, breaks."""
        if not task.cancelled():
            logging.getLogger("sim").error("engine failed: %r", task.exception())
            self.exit(1)

    async def serve(self, handler: Handler, warm: Callable[[bool], None], *, note: str = "") -> None:
        """Listen until the end; `slow_start` delays listening or, through `warm`, health. `note` is said once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.exit, 0)
        fork_child(self.book)
        slow = self.book.process("slow_start")
        late = slow is not None and slow.text("mode") == "no_listen"
        if slow is not None and late and await self._ends_within(slow.number("delay_s")):
            return
        server = Server(handler)
        try:
            port = await server.start(self._host, self._port)
        except OSError as error:
            raise StartError(
                f"cannot bind {self._host}:{self._port}: {os.strerror(error.errno or 0).lower()}"
            ) from error
        say(f"sim: listening on http://{self._host}:{port}")
        if note:
            say(f"sim: {note}")
        if slow is not None and slow.text("mode") == "health_503":
            warm(True)
            loop.call_later(slow.number("delay_s"), warm, False)
        # Start-up garbage is never looked at again: a full collection in mid-stream would cost milliseconds.
        gc.collect()
        gc.freeze()
        await self._ended.wait()
        await server.stop()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True


def fork_child(book: FaultBook) -> None:
    """Start the grandchild of the `fork_child` fault: own session, deaf to SIGTERM."""
    fault = book.process("fork_child")
    if fault is None:
        return
    if os.fork() == 0:
        os.setsid()
        argv = [sys.executable, "-c", STUBBORN, str(fault.number("life_s"))]
        os.execv(sys.executable, argv)  # noqa: S606 - the own interpreter, to outlive its parent


def _run(main: Coroutine[Any, Any, int]) -> int:
    return uvloop.run(main)


def run_cache(arguments: argparse.Namespace, settings: CacheSettings) -> int:
    """The cache service, until it is told to stop."""

    async def body() -> int:
        service = CacheService(settings)
        host = Host(arguments, service.book)

        def warm(value: bool) -> None:
            service.unhealthy = value

        await host.serve(service.handle, warm)
        return host.code

    return _run(body())


def load_tokenizer(directory: Path, memo: Path | None) -> tuple[Tokenizer, ChatTemplate | None]:
    """The tokenizer and, where there is one, its chat template."""
    try:
        tokenizer = Tokenizer(directory, memo)
    except (OSError, KeyError, ValueError) as error:
        raise StartError(f"cannot load a tokenizer from {directory}: {error}") from error
    try:
        return tokenizer, ChatTemplate(directory)
    except ChatTemplateError:
        return tokenizer, None


async def open_tier(arguments: argparse.Namespace, settings: ReplicaSettings) -> Tier | None:
    """The second tier that the command line asks for."""
    if arguments.native_offload_tokens:
        tokens = arguments.native_offload_tokens
        return NativeTier(model=arguments.model, block_size=settings.block_size, capacity_tokens=tokens)
    if arguments.cache is None:
        return None
    worker = int.from_bytes(os.urandom(7), "big")
    tier = RemoteTier(
        arguments.cache,
        model=arguments.model,
        worker=worker,
        timeout_s=settings.mq_timeout_s,
        heartbeat_s=settings.heartbeat_s,
    )
    for _ in range(REGISTER_TRIES):
        try:
            await tier.register()
        except CacheUnreachableError as error:
            problem = str(error)
            await asyncio.sleep(REGISTER_PAUSE_S)
        else:
            break
    else:
        raise StartError(f"no cache service at {arguments.cache}: {problem}")
    if tier.chunk_size % settings.block_size:
        raise StartError(f"chunk size {tier.chunk_size} is not a multiple of block size {settings.block_size}")
    return tier


def assemble(arguments: argparse.Namespace, settings: ReplicaSettings, tier: Tier | None, host: Host) -> Parts:
    """Everything a replica is made of."""
    tokenizer, template = load_tokenizer(arguments.tokenizer, arguments.token_memo)
    lag, missing = host.book.process("counter_lag"), host.book.process("empty_metrics")
    board, clock = CounterBoard(0.0 if lag is None else lag.number("delay_s")), Clock()
    engine = Engine(settings, tokenizer, tier, clock, board)
    config = cache_config(
        block_size=settings.block_size,
        num_gpu_blocks=settings.num_gpu_blocks,
        offload_tokens=arguments.native_offload_tokens,
    )
    external = missing is None or missing.text("mode") != "missing_external"
    collector = ReplicaCollector(board, arguments.model, engine.gauges, config, external=external)
    return Parts(
        model=arguments.model,
        settings=settings,
        prompts=Prompts(tokenizer, template, precision.helpers() if arguments.realtime else None),
        engine=engine,
        exposition=ReplicaExposition(collector),
        clock=clock,
        stamps=StampLog(arguments.stamps),
        book=host.book,
        exit=host.exit,
    )


def run_replica(arguments: argparse.Namespace, settings: ReplicaSettings) -> int:
    """A replica, until it is told to stop or its engine dies."""

    async def body() -> int:
        host = Host(arguments, FaultBook(settings.faults))
        tier = await open_tier(arguments, settings)
        parts = assemble(arguments, settings, tier, host)
        app = ReplicaApp(parts)

        def warm(value: bool) -> None:
            app.warming = value

        note = str(precision.ask(realtime=arguments.realtime, awake=arguments.keep_awake))
        stepping = asyncio.create_task(parts.engine.run())
        stepping.add_done_callback(host.watch)
        await host.serve(app.handle, warm, note=note)
        stepping.cancel()
        parts.stamps.flush()
        if tier is not None:
            tier.close()
        return host.code

    return _run(body())


def run_emitter(arguments: argparse.Namespace) -> int:
    """The emitter, until it is told to stop."""

    async def body() -> int:
        stamps = StampLog(arguments.stamps)
        emitter = Emitter(Clock(), stamps)
        host = Host(arguments, FaultBook([]))
        await host.serve(emitter.handle, lambda _: None)
        stamps.flush()
        return host.code

    return _run(body())
