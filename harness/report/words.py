"""Facts of a screening in short words: its arms, its order, its time scales, and which checks apply to its model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from harness.model.screening import Screening
from harness.model.stored import StoredRun

if TYPE_CHECKING:
    from harness.analysis import Cell

EN_DASH = "\N{EN DASH}"
_ORDER_SHOWN = 12
PAPER = "paper"
"""Declarations whose name starts so are set beside the published figures."""
METRICS: Mapping[str, str] = {
    "ttft": "TTFT",
    "session_wall": "session wall time",
    "decode_rate": "decode rate",
    "window_throughput": "window throughput",
}
"""Metrics with a section of their own; `ttft_after_connect` stands in the statistics' CSV only."""


def arm_names(run: StoredRun) -> tuple[str, ...]:
    """What the blocks stand for, the baseline first, then in order of position."""
    played = dict.fromkeys(block.plays for block in run.plan.blocks)
    return (run.screening.baseline, *(name for name in played if name != run.screening.baseline))


def order_label(run: StoredRun) -> str:
    """`OFF–ON–ON–OFF`; a long order is cut and counted."""
    names = [block.arm.upper() for block in run.plan.blocks]
    label = EN_DASH.join(names[:_ORDER_SHOWN])
    if len(names) > _ORDER_SHOWN:
        label += f"{EN_DASH}… ({len(names):,} blocks)"
    return f"{label} (A/A)" if run.plan.aa else label


def time_scales(run: StoredRun) -> str:
    """`8k × 0.5, 32k × 0.1` where simulated time was compressed; empty where every scale is 1."""
    scales = dict.fromkeys(
        (request.size, request.time_scale) for block in run.plan.blocks[:2] for request in block.requests
    )
    scaled = [(size, scale) for size, scale in scales if scale != 1.0]
    if not scaled:
        return ""
    if len({scale for _, scale in scales}) == 1:
        return f"time scale {scaled[0][1]:g} throughout"
    grouped = groupby(sorted(scaled, key=lambda item: item[1]), key=lambda item: item[1])
    return "; ".join(f"{', '.join(size for size, _ in items)}: time scale {scale:g}" for scale, items in grouped)


def applied_checks(screening: Screening) -> tuple[tuple[str, str], ...]:
    """The checks that the declaration applies to this model, each in words."""
    checks, engine, request = screening.checks, screening.engine, screening.request
    values = "planted values must come back exactly" if checks.answers == "exact" else "none: this model cannot answer"
    reserve = "asked in late turns" if checks.reserve_values else "not asked: every later answer stands in the history"
    local = f"whole blocks of {engine.block_size:,} tokens"
    if engine.hybrid:
        local = "need not be block-aligned nor equal across arms (hybrid)"
    queries = "prompt tokens − local hits" if engine.external_queries == "n_minus_local" else "prompt tokens"
    return (
        ("answers", values),
        ("response format", request.response_format or "free text"),
        ("reserve values", reserve),
        ("token count", f"within {checks.count_tolerance} tokens of the nominal size"),
        ("planted as", checks.style),
        ("local hits", local),
        ("shared tier", "none" if engine.chunk_size is None else f"whole chunks of {engine.chunk_size:,} tokens"),
        ("external queries", queries),
        ("isolation", "salt and namespaced text" if request.salt else "namespaced text only"),
        ("connection", f"{request.connection}, the same in every arm"),
        ("thinking", {True: "on", False: "off", None: "as the template has it"}[request.thinking]),
        ("void log lines", ", ".join(engine.void_log_patterns) or "none declared"),
    )


def cell_words(cell: Cell) -> str:
    """The condition of a cell without its metric: `128k cross`, `32k alternating`, `4 × 32k fixed`."""
    if cell.metric == "window_throughput":
        return f"{cell.sessions} × {cell.size} {cell.placement}"
    output = f", {cell.output:,} tokens" if cell.output else ""
    return f"{cell.size} {(cell.role or cell.placement).replace('_', '-')}{output}"
