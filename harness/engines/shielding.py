"""Teardown that a cancelled task still finishes."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def finish_despite_cancellation(task: asyncio.Task[T]) -> T:
    """The task's result; a cancellation that comes while waiting is raised only after the task has ended.

    A second Ctrl-C therefore does not leave half of a process tree behind; time-outs inside the task bound the wait.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            cancelled.add_note(f"and the teardown failed: {failure}")
        raise cancelled
    return task.result()
