"""Run one tool against the emitter: emitter on core 0, the tool on core 1, CPU time sampled where phases begin.

Priority: emitter and tool each get the best nice value, in a session of their own. Not real-time: equal real-time
processes wait for each other for up to a time slice of 100 ms, which would be unfair to tools made of several, and the
kernel interrupts a busy real-time process for 50 ms in every second as soon as anything else wants to run. Where the
rights are missing both run as they are, and the result says so.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.bench.peers.environments import ROOT, plain
from tests.bench.peers.tools import Load, Record, Tool, quiet_environment

EMITTER_CORE, TOOL_CORE = 0, 1
_TOOL_LIMIT_S = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """So many requests at this token rate."""

    requests: int
    rate: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Programme:
    """What one start of a tool is put through."""

    streams: int
    phases: tuple[Phase, ...]
    ttft_s: float = 0.02
    spread_s: float = 0.02

    @property
    def requests(self) -> int:
        return sum(phase.requests for phase in self.phases)

    def told(self) -> dict[str, Any]:
        phases = [{"requests": one.requests, "rate": one.rate, "tokens": one.tokens} for one in self.phases]
        return {"phases": phases, "streams": self.streams, "ttft_s": self.ttft_s, "spread_s": self.spread_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything one start of a tool left behind."""

    report: dict[str, Any]
    records: list[Record]
    cpu_at: dict[int, float]
    """CPU seconds of the tool's processes when the phase began; the last entry is the end of the programme."""
    wall_s: float
    raised: bool


class ToolFailed(Exception):
    """The reason, fit for the table."""


class EmitterProcess:
    """The emitter and the lines it prints."""

    def __init__(self) -> None:
        command = ["taskset", "-c", str(EMITTER_CORE), sys.executable, "-m", "tests.bench.peers.emitter"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True, start_new_session=True
        )
        self.raised = raise_priority(self._process.pid)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.put(line.strip())

    def ask(self, path: str, told: dict[str, Any] | None = None) -> Any:
        """GET, or POST where there is something to tell."""
        with httpx.Client(trust_env=False, timeout=120) as http:
            answer = http.get(self.url + path) if told is None else http.post(self.url + path, json=told)
        return answer.json()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def emitter() -> Iterator[EmitterProcess]:
    """An emitter for as long as the context lasts."""
    started = EmitterProcess()
    try:
        yield started
    finally:
        started.close()


def run_tool(served_by: EmitterProcess, tool: Tool, programme: Programme, folder: Path) -> Outcome:
    """Start the tool, wait for its end, collect both sides. Raises ToolFailed."""
    folder.mkdir(parents=True)
    load = Load(
        url=served_by.url,
        streams=programme.streams,
        requests=programme.requests,
        tokens=programme.phases[0].tokens,
        folder=folder,
    )
    served_by.ask("/programme", programme.told())
    began = time.monotonic()
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(TOOL_CORE), *tool.start(load)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=quiet_environment(tool),
            start_new_session=True,
        )
        raised = raise_priority(process.pid)
        try:
            cpu_at = _follow(served_by, process)
        finally:
            _end(process)
    report = served_by.ask("/report")
    if process.returncode:
        raise ToolFailed(f"ended with {process.returncode}: {_last_words(folder / 'output.txt')}")
    try:
        records = tool.records(load, report["offset_ns"])
    except (OSError, KeyError, ValueError, TypeError) as failed:
        raise ToolFailed(plain(f"left no records: {failed!r}")) from failed
    return Outcome(
        report=report,
        records=records,
        cpu_at=cpu_at,
        wall_s=time.monotonic() - began,
        raised=raised and served_by.raised,
    )


def raise_priority(pid: int) -> bool:
    """The highest nice value for the process, and for its session among sessions; False where that is not allowed."""
    try:
        psutil.Process(pid).nice(-20)
        group = Path(f"/proc/{pid}/autogroup")
        if group.exists():
            group.write_text("-20")
    except (OSError, psutil.Error):
        return False
    return True


def _follow(served_by: EmitterProcess, process: subprocess.Popen[bytes]) -> dict[int, float]:
    """CPU seconds of the tool when each phase began, until the tool ends by itself."""
    cpu_at: dict[int, float] = {}
    deadline = time.monotonic() + _TOOL_LIMIT_S
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise ToolFailed(f"had not ended after {_TOOL_LIMIT_S} s")
        try:
            line = served_by.lines.get(timeout=0.2)
        except queue.Empty:
            continue
        cpu_at[int(line.split()[1])] = _cpu_seconds(process.pid)
    while not served_by.lines.empty():
        served_by.lines.get()
    return cpu_at


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process and everything below it."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for one in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = one.cpu_times()
                total += times.user + times.system
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of the tool behind."""
    with contextlib.suppress(psutil.Error):
        left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for one in left:
            with contextlib.suppress(psutil.Error):
                one.kill()
    if process.poll() is None:
        process.kill()
    process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)


def _last_words(output: Path) -> str:
    lines: Sequence[str] = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return plain(lines[-1]) if lines else "it said nothing"
