"""One local process of an arm: spawned in its own session, output to a file, its end awaited as an event.

Strategy: a pid alone names nobody, because the kernel gives it out again. Every process is known as (pid, start)
and is only ever signalled after both have been compared.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.model.errors import EngineError

RUN_ID_VARIABLE = "KVABBA_RUN_ID"
"""Marks every descendant of one launch in its environment, also those that left their session and were re-parented."""

TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identity of a process: its pid and its start, in clock ticks since boot (field 22 of /proc/PID/stat).

    Ticks since boot, unlike a wall-clock creation time, do not move when the clock is set.
    """

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """True while it still is the same process and has not ended (a zombie has)."""
        return _stat(self.pid) == (self.start_ticks, True)

    def send(self, number: signal.Signals) -> bool:
        """Signal it, if it still is the same process; True where a signal was sent.

        Through a pidfd that is opened before the identity is compared: the pid cannot be given out again in between.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)


def identify(pid: int) -> ProcessId | None:
    """The identity of a pid, zombies included; None where there is no such process."""
    stat = _stat(pid)
    return None if stat is None else ProcessId(pid, stat[0])


def _stat(pid: int) -> tuple[int, bool] | None:
    """(start in ticks since boot, still running) of a pid, None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold anything, brackets included: fields are counted from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return int(fields[19]), fields[0] not in {b"Z", b"X"}


class LocalProcess:
    """A spawned child. Its descendants are the business of `tree`."""

    def __init__(self, child: subprocess.Popen[bytes], identity: ProcessId, log_path: Path) -> None:
        self._child = child
        self.id = identity
        self.log_path = log_path

    @classmethod
    def spawn(
        cls, *, name: str, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, log_path: Path
    ) -> LocalProcess:
        """Start it in its own session with stdout and stderr appended to `log_path`; EngineError(phase="spawn")."""
        try:
            with log_path.open("ab") as log:
                child = subprocess.Popen(
                    argv,
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineError(
                f"{name}: cannot start {argv[0]!r}: {error.strerror}",
                phase="spawn",
                hint="Check the interpreter or program and the working directory of the declaration.",
            ) from error
        # Not yet waited for, so the pid cannot have been given out again: the identity is the child's.
        identity = identify(child.pid)
        if identity is None:  # pragma: no cover - an unwaited child has an entry, if only as a zombie
            raise EngineError(f"{name}: the child vanished", phase="spawn")
        return cls(child, identity, log_path)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self.id.pid

    def exit_code(self) -> int | None:
        """Exit code (negative: ended by that signal), None while it runs. Reaps it."""
        return self._child.poll()

    async def exited(self) -> int:
        """Wait for its end without polling, and reap it."""
        await wait_gone(self.id)
        return self._child.wait()

    def log_tail(self) -> str:
        """The last 4 KiB of its output, undecodable bytes replaced."""
        return tail(self.log_path)


def tail(path: Path) -> str:
    """The last 4 KiB of a log file; empty where there is no file."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            return log.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


async def wait_gone(identity: ProcessId) -> None:
    """Return when that process has ended (a zombie has ended); an event of the kernel, not a poll."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if not identity.alive():
            return
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(descriptor, ended.cancel)
        try:
            await asyncio.wait({ended})
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
