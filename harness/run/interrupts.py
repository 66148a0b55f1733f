"""Ctrl-C and SIGTERM become one cancellation; what follows is teardown, which a second signal does not disturb."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.model.errors import InterruptedRun

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@asynccontextmanager
async def interruptible(hint: str | None = None) -> AsyncIterator[None]:
    """Turn the first signal into InterruptedRun (exit code 6) once everything inside has been torn down.

    `hint` is the next step that the error names.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    caught: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if not caught and task is not None:
            task.cancel()
        caught.append(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    except asyncio.CancelledError:
        if not caught:
            raise
        if task is not None:
            task.uncancel()
        raise InterruptedRun(f"interrupted by {caught[0].name}; everything was stopped", hint=hint) from None
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
