"""Every descendant of a launch, and its end.

Strategy: three nets over one another, since each has a hole.
1. Children of the spawned roots, recursively (misses what was re-parented).
2. This process as child sub-reaper: orphaned descendants become our own children (Linux; misses nothing below us, but
   holds also children that others of this process started).
3. The environment marker, read from /proc/PID/environ: tells a launch's orphans from other children, whatever session,
   parent or title they have given themselves.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

import psutil

from harness.engines.processes import RUN_ID_VARIABLE, ProcessId, identify, wait_gone

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Let orphaned descendants be re-parented to this process, for as long as it lives; False where not supported."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def descendants(roots: Iterable[ProcessId], marker: str, seen: Iterable[ProcessId] = ()) -> frozenset[ProcessId]:
    """Living processes of one spawned tree: roots, their children, everything with that marker, what was seen before.

    Costs one walk over /proc (a few milliseconds a hundred processes).
    """
    found = {identity for identity in (*roots, *seen) if identity.alive()}
    for identity in tuple(found):
        with suppress(psutil.NoSuchProcess):
            found.update(_identities(psutil.Process(identity.pid).children(recursive=True)))
    return frozenset(found) | marked(marker)


def marked(prefix: str) -> frozenset[ProcessId]:
    """Living processes whose environment carries a launch marker that begins with `prefix`.

    Markers are `RUN/NAME`: the run's id alone finds every process of a launch.
    """
    return frozenset(
        _identities(process for process in psutil.process_iter() if (_marker(process) or "").startswith(prefix))
    )


async def end(
    roots: Iterable[ProcessId], marker: str, *, grace_s: float, kill_s: float, seen: Iterable[ProcessId] = ()
) -> tuple[frozenset[ProcessId], frozenset[ProcessId]]:
    """SIGTERM the whole tree, wait up to `grace_s`, SIGKILL what is left, wait up to `kill_s`.

    Returns:
        (killed, survivors): those that needed SIGKILL, and those that are still there. The caller decides what
        survivors mean; nothing but processes of this launch is signalled.
    """
    roots = tuple(roots)
    known = descendants(roots, marker, seen)
    for identity in known:
        identity.send(signal.SIGTERM)
    await _all_gone(known, timeout_s=grace_s)
    killed: set[ProcessId] = set()
    deadline = asyncio.get_running_loop().time() + kill_s
    # A dying process may still fork: look again until a walk finds nobody.
    while left := descendants(roots, marker, known):
        for identity in left:
            identity.send(signal.SIGKILL)
        killed |= left
        remaining = deadline - asyncio.get_running_loop().time()
        if remaining <= 0:
            break
        await _all_gone(left, timeout_s=min(remaining, 1.0))
        reap(left - frozenset(roots))
        known |= left
    reap(known - frozenset(roots))
    return frozenset(killed), descendants(roots, marker, known)


async def end_group(leader: ProcessId) -> None:
    """SIGKILL a session leader and the processes of its group, if the leader still is the same process."""
    if leader.alive():
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, signal.SIGKILL)
    await wait_gone(leader)


def reap(identities: Iterable[ProcessId]) -> None:
    """Collect the exit status of orphans that were re-parented to us; never roots, whose `Popen` does."""
    for identity in identities:
        with suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)


def title(identity: ProcessId) -> str:
    """What a process calls itself: its name and command line; empty where it has ended."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process = psutil.Process(identity.pid)
        return " ".join([process.name(), *process.cmdline()])
    return ""


def describe(identity: ProcessId) -> str:
    """`pid 123 (VLLM::EngineCore)`, for messages."""
    try:
        return f"pid {identity.pid} ({psutil.Process(identity.pid).name()})"
    except psutil.NoSuchProcess:
        return f"pid {identity.pid} (gone)"


async def _all_gone(identities: Iterable[ProcessId], *, timeout_s: float) -> None:
    waits = [asyncio.ensure_future(wait_gone(identity)) for identity in identities]
    if not waits:
        return
    _, pending = await asyncio.wait(waits, timeout=timeout_s)
    for task in pending:
        task.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


def _identities(processes: Iterable[psutil.Process]) -> list[ProcessId]:
    identities = (identify(process.pid) for process in processes)
    return [identity for identity in identities if identity is not None and identity.alive()]


def _marker(process: psutil.Process) -> str | None:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return process.environ().get(RUN_ID_VARIABLE)
    return None
