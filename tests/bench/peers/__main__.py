"""This client beside aiperf, guidellm, vLLM's serving benchmark and inference-perf, on one load: `make bench-peers`.

Run `python -m tests.bench.peers [--runs N] [--only NAME …] [--quick] [--write docs/benchmarks.md]` from the project's
root, on an otherwise idle machine with two cores. Missing environments are installed first (some GB). Every run starts
each client once at 1 stream and once, in reversed order, at 64 streams; the next run begins with the other end. The
start at 64 streams goes on into a ladder of token rates, until the client no longer keeps up or the emitter is
saturated. Figures go to results/peers/; `--write` puts the tables between the markers of a document.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.peers.environments import ROOT, NotInstallable
from tests.bench.peers.figures import PhaseFigures, phase_figures, sustained
from tests.bench.peers.measuring import EMITTER_CORE, EmitterProcess, Phase, Programme, ToolFailed, emitter, run_tool
from tests.bench.peers.table import document, machine, number
from tests.bench.peers.tools import PEERS, Tool, own

RATE = 50.0
STREAMS = 64
LADDER = (100, 200, 300, 400, 500, 600, 800, 1000, 1200, 1600)
"""Tokens/s a stream."""
_WAVE_S = 0.6
_BEGIN, _END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"


def single(*, quick: bool) -> Programme:
    """One stream: short requests, because a request gives one TTFT only."""
    return Programme(streams=1, phases=(Phase(requests=40 if quick else 160, rate=RATE, tokens=4),))


def many(*, quick: bool) -> Programme:
    """64 streams at 50 tokens/s, then the ladder: three waves a rung, the first of which is not counted."""
    first = Phase(requests=STREAMS * (2 if quick else 6), rate=RATE, tokens=50)
    rungs = LADDER[:2] if quick else LADDER
    ladder = [Phase(requests=STREAMS * 3, rate=rate, tokens=round(rate * _WAVE_S)) for rate in rungs]
    return Programme(streams=STREAMS, phases=(first, *ladder))


def tools(only: Sequence[str]) -> tuple[list[Tool], list[dict[str, Any]]]:
    """Everything that can run, and a row with the reason for everything that cannot."""
    ready, rows = [own("reused"), own("new")], []
    for name, make in PEERS:
        if only and name not in only:
            continue
        try:
            ready.append(make())
        except NotInstallable as reason:
            rows.append({"tool": name, "version": "", "ours": False, "reason": f"cannot be installed: {reason}"})
    return ready, rows


def one_start(
    served_by: EmitterProcess, tool: Tool, programme: Programme, folder: Path
) -> tuple[list[PhaseFigures], bool]:
    """Measure and say so; also whether priorities could be raised."""
    outcome = run_tool(served_by, tool, programme, folder)
    phases = phase_figures(outcome, programme)
    first = phases[0]
    spread = first.ttft
    words = "nothing comparable" if spread is None else f"median {number(spread.median)}, p99 {number(spread.p99)} µs"
    sys.stdout.write(
        f"  {programme.streams:3d} streams, {tool.name}: TTFT error {words}, "
        f"{first.compared} of {first.asked} requests, CPU {number(first.cpu_us_per_event)} µs an event, "
        f"{outcome.wall_s:.0f} s in all\n"
    )
    sys.stdout.flush()
    return phases, outcome.raised


def one_run(ready: Sequence[Tool], folder: Path, *, forth: bool, quick: bool) -> dict[str, Any]:
    """All tools at 1 stream, then all in reversed order at 64."""
    began, load = time.monotonic(), os.getloadavg()
    raised = True
    rows: dict[str, dict[str, Any]] = {
        tool.name: {"tool": tool.name, "version": tool.version, "ours": tool.ours, "loads": {}} for tool in ready
    }
    order = list(ready) if forth else list(reversed(ready))
    halves = [(order, single(quick=quick)), (list(reversed(order)), many(quick=quick))]
    with emitter() as served_by:
        for turn, programme in halves:
            for tool in turn:
                row = rows[tool.name]
                try:
                    phases, as_told = one_start(served_by, tool, programme, folder / f"{programme.streams}-{tool.name}")
                except ToolFailed as reason:
                    row["reason"] = f"could not run: {reason}"
                    sys.stdout.write(f"  {tool.name} {row['reason']}\n")
                    continue
                raised = raised and as_told
                row["loads"][str(programme.streams)] = [phase.as_dict() for phase in phases]
                if programme.streams > 1:
                    top = programme.phases[-1].rate * programme.streams
                    row["received"] = asdict(sustained(phases, top))
                    row["sustained"] = asdict(sustained(phases, top, exact=True))
                    row["unmarked"] = asdict(sustained(phases, top, exact=True, unmarked=True)) if tool.ours else None
    return {
        "load_average": load,
        "raised": raised,
        "minutes": (time.monotonic() - began) / 60,
        "order": [[tool.name for tool in turn] for turn, _ in halves],
        "rows": list(rows.values()),
    }


def write_between_markers(document_path: Path, text: str) -> None:
    """Replace what stands between the markers."""
    before, _, rest = document_path.read_text().partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise SystemExit(f"{document_path} has no markers {_BEGIN} … {_END}")
    document_path.write_text(f"{before}{_BEGIN}\n\n{text}\n{_END}{after}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="these peers only")
    parser.add_argument("--quick", action="store_true", help="few requests: shows that everything works, no more")
    parser.add_argument("--write", type=Path, help="put the tables into this document")
    options = parser.parse_args()
    ready, unable = tools(options.only)
    os.sched_setaffinity(0, {EMITTER_CORE})
    folder = ROOT / "results" / "peers" / time.strftime("%Y%m%d-%H%M%S")
    told: dict[str, Any] = {"machine": machine(), "quick": options.quick, "runs": []}
    for index in range(options.runs):
        sys.stdout.write(f"run {index + 1} of {options.runs}\n")
        run = one_run(ready, folder / f"run-{index + 1}", forth=index % 2 == 0, quick=options.quick)
        run["rows"] += unable
        told["runs"].append(run)
        (folder / "figures.json").write_text(json.dumps(told, indent=1))
    text = document(told)
    sys.stdout.write(f"\n{text}\nfigures: {(folder / 'figures.json').relative_to(ROOT)}\n")
    if options.write:
        write_between_markers(options.write, text)


if __name__ == "__main__":
    main()
