"""The table of one or more runs as Markdown, with the machine it was made on. Ratios first: figures ÷ this client's."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BASE = "kvabba, connections kept"
"""The row all others are divided by: the peers keep their connections too."""
HALF, TWICE = 0.5, 2.0


def machine() -> dict[str, Any]:
    """CPU, kernel, Python; nothing that names the machine."""
    info = Path("/proc/cpuinfo").read_text()
    fields = dict(line.split(":", 1) for line in info.split("\n\n", 1)[0].splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": fields.get("model name", platform.machine()),
        "cores": os.cpu_count(),
        "virtual": "hypervisor" in fields.get("flags", "").split(),
        "memory_gib": round(memory),
        "kernel": platform.release().split("-")[0],
        "system": platform.system(),
        "python": platform.python_version(),
    }


def machine_line(told: dict[str, Any]) -> str:
    kind = "virtual machine, " if told["virtual"] else ""
    return (
        f"{kind}{told['cores']} cores of {told['cpu']}, {told['memory_gib']} GiB, {told['system']} {told['kernel']}, "
        f"Python {told['python']}"
    )


def number(value: float | None) -> str:
    """Three significant digits where small, none after the point where large."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def ratio(value: float | None, base: float | None) -> str:
    if value is None or not base:
        return "–"
    return f"{value / base:.1f}×" if value / base < 100 else f"{value / base:,.0f}×"


def figure(row: dict[str, Any], load: str, kind: str, part: str) -> float | None:
    """One figure of a row, e.g. ("64", "ttft", "p99"); None where the row has none."""
    phases = (row.get("loads") or {}).get(load)
    spread = phases[0][kind] if phases else None
    return None if spread is None else float(spread[part])


def both(value: float | None, base: float | None) -> str:
    """A figure, and how often it holds the base's."""
    return "–" if value is None else f"{number(value)} ({ratio(value, base)})"


def base_of(run: dict[str, Any]) -> dict[str, Any]:
    """The row that the others are divided by; empty where it is missing."""
    found: dict[str, Any] = next((row for row in run["rows"] if row["tool"] == BASE), {})
    return found


def run_table(run: dict[str, Any]) -> str:
    """One run."""
    base = base_of(run)
    lines = [
        "| client | TTFT error, 1 stream: median | p99 | 64 streams: median | p99 | CPU an event, 64 streams |",
        "|---|---|---|---|---|---|",
    ]
    for row in run["rows"]:
        if row.get("reason"):
            lines.append(f"| {label(row)} | {row['reason']} | | | | |")
            continue
        cells = [
            both(figure(row, load, "ttft", part), figure(base, load, "ttft", part))
            for load in ("1", "64")
            for part in ("median", "p99")
        ]
        cells.append(both(cpu_of(row), cpu_of(base)))
        lines.append(f"| {label(row)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def label(row: dict[str, Any]) -> str:
    return row["tool"] if row["version"] == "this tree" else f"{row['tool']} {row['version']}"


def cpu_of(row: dict[str, Any]) -> float | None:
    phases = (row.get("loads") or {}).get("64")
    return phases[0]["cpu_us_per_event"] if phases else None


def sustained_table(run: dict[str, Any]) -> str:
    """The load that each client kept up with, first by what it received alone, then with a good TTFT as well."""
    base = base_of(run)
    lines = ["| client | events/s received | ended by | with TTFT p99 ≤ 5 ms | ended by |", "|---|---|---|---|---|"]
    for row in run["rows"]:
        if not row.get("reason"):
            cells = [*ladder_cells(row, base, "received"), *ladder_cells(row, base, "sustained")]
            lines.append(f"| {label(row)} | " + " | ".join(cells) + " |")
    for row in run["rows"]:
        if own_limit := row.get("unmarked"):
            value, more = own_limit["events_per_s"], "at least " if own_limit["at_least"] else ""
            lines.append(
                f"\n{row['tool']}: at most 1 % of rows marked client-limited up to {more}{number(value)} events/s."
            )
    return "\n".join(lines)


def ladder_cells(row: dict[str, Any], base: dict[str, Any], kind: str) -> list[str]:
    told = row.get(kind)
    if told is None:
        return ["–", ""]
    value, ours = told["events_per_s"], (base.get(kind) or {}).get("events_per_s")
    more = "≥ " if told["at_least"] else ""
    shown = "below the lowest" if value is None else f"{more}{number(value)} ({ratio(value, ours)})"
    return [shown, told["ended_by"]]


def stamp_table(run: dict[str, Any]) -> str:
    """How late each client stamped the first token, whatever it takes for the start of the request."""
    base = base_of(run)
    lines = ["| client | 1 stream: median | p99 | 64 streams: median | p99 |", "|---|---|---|---|---|"]
    for row in run["rows"]:
        if row.get("reason"):
            continue
        cells = [
            both(figure(row, load, "stamp", part), figure(base, load, "stamp", part))
            for load in ("1", "64")
            for part in ("median", "p99")
        ]
        lines.append(f"| {label(row)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def targets(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Each target, met or missed, with the figures of every run. The best peer is the best for this very figure."""
    lines = []
    for load in ("1", "64"):
        for part in ("median", "p99"):
            pairs = [_best(run, load, part) for run in runs]
            lines.append(_verdict(f"TTFT error, {load} stream{'s' if load != '1' else ''}, {part}", pairs))
    lines.append(_ladder_verdict(runs, "received", "Events/s received, a core"))
    lines.append(_ladder_verdict(runs, "sustained", "Events/s received with a TTFT p99 within 5 ms, a core"))
    return lines


def _peers(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in run["rows"] if not row["ours"] and not row.get("reason")]


def _best(run: dict[str, Any], load: str, part: str) -> tuple[float | None, float | None, str]:
    base = base_of(run)
    found = [(value, row["tool"]) for row in _peers(run) if (value := figure(row, load, "ttft", part)) is not None]
    value, name = min(found, key=lambda one: abs(one[0])) if found else (None, "no peer")
    return figure(base, load, "ttft", part), value, name


def _verdict(what: str, pairs: Sequence[tuple[float | None, float | None, str]]) -> str:
    shares = [None if ours is None or not best else ours / abs(best) for ours, best, _ in pairs]
    met = all(share is not None and share <= HALF for share in shares)
    shown = ", ".join("–" if share is None else f"{share:.2f}" for share in shares)
    names = ", ".join(dict.fromkeys(name for _, _, name in pairs))
    return f"- {what}: {'met' if met else '**missed**'}. Share of the best peer's ({names}): {shown}; target ≤ {HALF}."


def _ladder_verdict(runs: Sequence[dict[str, Any]], kind: str, what: str) -> str:
    factors, names, least = [], [], False
    for run in runs:
        base = base_of(run)
        ours = base.get(kind) or {}
        found = [(told["events_per_s"], row["tool"]) for row in _peers(run) if (told := row.get(kind))]
        best, name = max(((value, name) for value, name in found if value), default=(None, "no peer"))
        factors.append(None if not ours.get("events_per_s") or not best else ours["events_per_s"] / best)
        names.append(name)
        least = least or bool(ours.get("at_least"))
    met = all(factor is not None and factor >= TWICE for factor in factors)
    shown = ", ".join("–" if factor is None else f"{factor:.1f}" for factor in factors)
    word = "at least " if least else ""
    peers = ", ".join(dict.fromkeys(names))
    return (
        f"- {what}: {'met' if met else '**missed**'}. {word}{shown} times the best peer's ({peers}); target ≥ {TWICE}."
    )


def document(told: dict[str, Any]) -> str:
    """Everything between the markers of docs/benchmarks.md."""
    runs = told["runs"]
    raised = all(run["raised"] for run in runs)
    nice = "both at the best nice value" if raised else "at ordinary priority: the rights to raise it were missing"
    parts = [f"Machine: {machine_line(told['machine'])}. Emitter on core 0, each client alone on core 1, {nice}."]
    for index, run in enumerate(runs, start=1):
        load = ", ".join(f"{value:.2f}" for value in run["load_average"])
        title = f"### Run {index}: {run['minutes']:.1f} min, load average before it {load}"
        order = f"Order: {', '.join(run['order'][0])} at 1 stream; {', '.join(run['order'][1])} at 64."
        parts += [title, order, "µs (ratio to the first row):", run_table(run)]
        parts += [
            "Lateness of the first token's stamp alone, µs:",
            stamp_table(run),
            "Sustained:",
            sustained_table(run),
        ]
    return "\n\n".join([*parts, "### Targets", "\n".join(targets(runs))]) + "\n"
