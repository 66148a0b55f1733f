"""`python -m tests.bench.folder_scale [blocks ...]`: a results folder on disk, audited and reported in a child process.

A folder of N blocks of the paper's plan (192 requests each) is made by the project's own writer: every block holds its
tables, its `payloads.json`, and a body of 1 KiB for each of its payloads, copied as a run copies them. Then a child
process reads it, audits it, summarises it and writes the report, through the same functions as `kvabba report`.

References printed beside the figures: 1,000 blocks (192,000 rows) audited and reported, and 10,000 blocks (1.92 million
rows) audited and summarised, each in under 60 s and 2 GiB on two cores. What it takes to make the folder is printed
apart. The folder lies in `--folder` (default: a temporary one, removed afterwards); one that exists already is used
again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
TARGET_S, TARGET_GIB = 60.0, 2.0
REPORTED = 1_000
"""Blocks up to which the reference includes the report."""


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print wall and CPU seconds of a stage, child processes included, and the peak so far."""
    began, cpu = time.perf_counter(), _cpu()
    yield
    wall, used = time.perf_counter() - began, _cpu() - cpu
    say(f"  {what:22} {wall:7.1f} s wall {used:7.1f} s CPU   peak {peak_gib():.2f} GiB")


def say(line: str) -> None:
    """One line at once."""
    print(line, flush=True)  # noqa: T201 - a benchmark prints


def peak_gib() -> float:
    """Largest resident sizes so far of this process and of its helpers, added up (shared pages count for each)."""
    me = psutil.Process()
    return sum(_peak_kib(process.pid) for process in (me, *me.children(recursive=True))) / 2**20


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return 0  # it has just ended
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def _cpu() -> float:
    """CPU seconds of this process and its helpers, ended ones included."""
    times = os.times()
    helpers = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    ended = times.user + times.system + times.children_user + times.children_system
    return ended + sum(helper.user + helper.system for helper in helpers)


def judge_folder(folder: Path) -> None:
    """Read, audit, summarise and report one folder; what the child process does."""
    from harness.wiring import results  # noqa: PLC0415 - the import is a part of what is timed

    began = time.perf_counter()
    with timed("read and verify"):
        run = results.read_folder(folder)
    with timed("audit"):
        judged = results.judge(run)
    floors = folder / "floors.json"
    with timed("summary"):
        effects = results.analyse_with_floors(judged, floors)
        results.keep_verdict(judged, folder)
        results.keep_summary(judged, effects, folder)
    verdict = judged.verdict
    rows = f"{verdict.rows:,} rows = {verdict.paired:,} paired + {verdict.excluded:,} excluded"
    say(f"  verdict {verdict.status}: {rows}; {len(effects.table.effects)} cells")
    for found in verdict.findings[:3]:
        say(f"     {found.severity} {found.rule} {found.subject} {found.detail}")
    _total("audited and summarised", time.perf_counter() - began)
    with timed("report"):
        page = results.write_page(judged, effects, folder)
    say(f"  page of {page.stat().st_size / 2**20:.1f} MiB")
    _total("audited and reported", time.perf_counter() - began)


def _total(what: str, wall: float) -> None:
    reference = f"reference: {TARGET_S:.0f} s, {TARGET_GIB:.0f} GiB"
    say(f"  => {what}: {wall:.1f} s wall, peak {peak_gib():.2f} GiB ({reference})")


def main() -> None:
    """Make each folder where it is not there yet, then time a child process on it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blocks", nargs="*", type=int, default=[REPORTED, 10 * REPORTED])
    parser.add_argument("--folder", type=Path, help="where folders lie and stay; default: a temporary one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that make the folder")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.judge is not None:
        judge_folder(asked.judge)
        return
    with tempfile.TemporaryDirectory(prefix="kvabba-scale-") as temporary:
        for blocks in asked.blocks:
            run = made(asked.folder or Path(temporary), blocks, asked.jobs)
            command = [sys.executable, "-m", "tests.bench.folder_scale", "--judge", str(run)]
            subprocess.run(command, cwd=ROOT, check=True)


def made(results: Path, blocks: int, jobs: int) -> Path:
    """The folder of that many blocks, made if it is not whole yet."""
    from tests.bench.folder_making import make  # noqa: PLC0415 - the child process needs none of it

    run = results / "scale" / f"blocks-{blocks}"
    if not (run / "made").is_file():
        began = time.perf_counter()
        make(results, run.name, blocks, jobs)
        (run / "made").touch()
        say(f"{blocks:,} blocks made in {time.perf_counter() - began:.1f} s")
    say(f"{blocks:,} blocks of 192 requests and 1 KiB bodies:")
    return run


if __name__ == "__main__":
    main()
