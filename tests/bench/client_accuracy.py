"""How exact is the client? Errors against the send stamps of an emitter in another process, per transport.

Run `python -m tests.bench.client_accuracy [--quick] [--json FILE]` from the project's root on an otherwise idle
machine with at least two cores: the emitter is pinned to one, the client to another.

Every cell (transport × streams × tokens/s a stream) is run several times, in an order that goes forth and back over the
transports, so that drift of the machine hits all alike. Error = client's stamp − the emitter's stamp before its send,
in µs, so the way through loopback is part of it; sends in which the emitter itself was interrupted are left out and
counted. `late` is the emitter's own p99 lateness: where it is marked, the emitter and not the client was saturated.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from harness.client import Call, ClientSettings, client_limited, open_client
from harness.client.calibrate import UNCERTAIN_NS, emitter_process, emitter_report
from harness.client.settings import TransportName
from harness.model.observation import Observation
from harness.wire.rates import decode_rate

TRANSPORTS: tuple[TransportName, ...] = ("kernel", "callback", "httpx")
STREAMS = (1, 16, 64, 256)
RATES = (20, 50, 200)
SATURATION_RATES = (50, 75, 100, 125, 150, 200, 250, 300)
SATURATED_NS = 5_000_000
CLIENT_CORE, EMITTER_CORE = 0, 1


@dataclass(kw_only=True)
class Cell:
    """All observations of one transport at one load."""

    transport: TransportName
    streams: int
    rate: float
    ttft_errors: list[int] = field(default_factory=list)
    stamp_errors: list[int] = field(default_factory=list)
    rate_errors: list[float] = field(default_factory=list)
    events: int = 0
    uncertain: int = 0
    failed: int = 0
    limited: int = 0
    cpu_s: float = 0.0
    emitter_late_ns: int = 0

    def summary(self) -> dict[str, Any]:
        """Figures of the cell: µs for stamps, % for the decode rate, µs of client CPU an event."""
        return {
            "transport": self.transport,
            "streams": self.streams,
            "tokens_per_s": self.rate,
            "events_per_s": self.streams * self.rate,
            "ttft_us": spread(self.ttft_errors, 1e3),
            "stamp_us": spread(self.stamp_errors, 1e3),
            "decode_rate_pct": spread([abs(error) for error in self.rate_errors], 0.01),
            "cpu_us_per_event": self.cpu_s * 1e6 / max(1, self.events),
            "events": self.events,
            "uncertain": self.uncertain,
            "failed": self.failed,
            "client_limited": self.limited,
            "emitter_late_p99_us": self.emitter_late_ns / 1e3,
            "emitter_saturated": self.emitter_late_ns > SATURATED_NS,
        }


def spread(values: Sequence[float], unit: float) -> dict[str, float] | None:
    """Median, p99 and maximum in `unit`; None where there is nothing."""
    if not values:
        return None
    ordered = sorted(values)
    at = [len(ordered) // 2, min(len(ordered) - 1, len(ordered) * 99 // 100), -1]
    return dict(zip(("median", "p99", "max"), (ordered[index] / unit for index in at), strict=True))


async def run_cell(cell: Cell, url: str, seconds: float) -> None:
    """One round: all streams at once, spread over one token gap; decoding after the last has ended."""
    events = max(5, int(seconds * cell.rate))
    ready_ms = 30 + 2 * cell.streams  # until then all streams are connected
    calls = [
        Call(
            replica="emitter",
            url=url,
            path="/v1/chat/completions",
            body=b"{}",
            request_id=f"r{index}",
            headers={
                "x-emit-events": str(events),
                "x-emit-rate": str(cell.rate),
                "x-emit-ttft-ms": str(ready_ms + 1000 / cell.rate * index / cell.streams),
            },
        )
        for index in range(cell.streams)
    ]
    async with open_client(ClientSettings(transport=cell.transport, timeout_s=60)) as client:
        sending = asyncio.gather(*(client.exchange(call) for call in calls))
        await asyncio.sleep(ready_ms / 1e3)  # connecting is not part of the cost of an event
        before = time.process_time()
        raw = await sending
        cell.cpu_s += time.process_time() - before
        observations = [client.observe(result) for result in raw]
    report = await emitter_report(url)
    cell.emitter_late_ns = max(cell.emitter_late_ns, report["late_p99_ns"])
    for observation in observations:
        take(cell, observation, report["sent"][observation.request_id])


def take(cell: Cell, observation: Observation, sent: Sequence[Sequence[int]]) -> None:
    """Compare one stream with the truth."""
    cell.limited += client_limited(observation) is not None
    stamps = [event.at_ns for event in observation.events if event.kind == "content"]
    cell.events += len(stamps)
    if not observation.ok or len(stamps) != len(sent):
        cell.failed += 1
        return
    certain = [after - before < UNCERTAIN_NS for before, after in sent]
    errors = [stamp - before for stamp, (before, _) in zip(stamps, sent, strict=True)]
    cell.uncertain += certain.count(False)
    cell.stamp_errors += [error for error, sure in zip(errors, certain, strict=True) if sure]
    if certain[0]:
        cell.ttft_errors.append(errors[0])
    truth = (len(sent) - 1) * 1e9 / (sent[-1][0] - sent[0][0])
    rate = decode_rate(observation)
    if certain[0] and certain[-1] and rate is not None:
        cell.rate_errors.append(rate / truth - 1)


def measure(cells: Sequence[Cell], seconds: float, rounds: int) -> None:
    """Run all cells, forth and back."""

    async def all_rounds() -> None:
        async with emitter_process(pin_to=EMITTER_CORE) as url:
            for index in range(rounds):
                for cell in cells if index % 2 == 0 else tuple(reversed(cells)):
                    gc.collect()
                    await run_cell(cell, url, seconds)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(all_rounds())


def saturation(streams: int, seconds: float) -> list[dict[str, Any]]:
    """Raise the load until a transport's p99 stamp error passes 5 ms, or the emitter is saturated."""
    found = []
    for transport in TRANSPORTS:
        sustained, why = 0.0, "the load never reached the limit"
        for rate in SATURATION_RATES:
            cell = Cell(transport=transport, streams=streams, rate=rate)
            measure([cell], seconds, rounds=1)
            figures = cell.summary()
            if cell.failed or (figures["stamp_us"] or {}).get("p99", 1e9) * 1e3 > SATURATED_NS:
                why = "client: p99 above 5 ms"
                break
            if figures["emitter_saturated"]:
                why = "emitter saturated"
                break
            sustained = figures["events_per_s"]
        found.append({"transport": transport, "sustained_events_per_s": sustained, "ended_by": why})
    return found


def line(figures: dict[str, Any]) -> str:
    """One row of the table."""

    def three(name: str) -> str:
        values = figures[name]
        return " ".join(f"{values[key]:9.1f}" for key in ("median", "p99", "max")) if values else " " * 29

    mark = "*" if figures["emitter_saturated"] else " "
    return (
        f"{figures['streams']:4d} {figures['tokens_per_s']:5.0f} {figures['transport']:9s} {three('ttft_us')} |"
        f"{three('stamp_us')} |{three('decode_rate_pct')} | {figures['cpu_us_per_event']:6.1f} "
        f"{figures['emitter_late_p99_us']:8.0f}{mark} {figures['uncertain']:5d} {figures['client_limited']:5d} "
        f"{figures['failed']:4d}\n"
    )


HEADER = (
    "   N tok/s transport      TTFT error, µs: median p99 max |   stamp error, µs: median p99 max |"
    " |decode rate error|, %        | cpu µs  em. late  unc.  lim. fail\n"
)


def machine() -> dict[str, Any]:
    """What the figures were made on."""
    return {
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "uvloop": uvloop.__version__,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of the two loads with a target")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--no-saturation", action="store_true", help="leave out the search for the sustained load")
    options = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    loads = [(1, 50), (64, 50)] if options.quick else [(streams, rate) for streams in STREAMS for rate in RATES]
    results = []
    sys.stdout.write(HEADER)
    for streams, rate in loads:
        cells = [Cell(transport=name, streams=streams, rate=rate) for name in TRANSPORTS]
        single = streams == 1  # many short requests: a request gives one TTFT only
        rounds = 60 if single else 2
        measure(cells, 0.1 if single else 2.0, rounds=rounds // 4 if single and options.quick else rounds)
        for cell in cells:
            results.append(cell.summary())
            sys.stdout.write(line(results[-1]))
            sys.stdout.flush()
    limits = [] if options.quick or options.no_saturation else saturation(256, 2.0)
    for limit in limits:
        sys.stdout.write(f"{limit['transport']:9s} sustains {limit['sustained_events_per_s']:.0f} events/s a core")
        sys.stdout.write(f" ({limit['ended_by']})\n")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "cells": results, "saturation": limits}, indent=1))


if __name__ == "__main__":
    main()
