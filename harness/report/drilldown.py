"""The per-pair table: which request pairs the page holds, and each pair's requests side by side.

A page that must stay usable cannot hold 96,000 pairs: every pair with a finding comes first, then pairs in the order
in which they ran, up to `PAIRS`. What is left out is counted and said, and where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.model.findings import Verdict
from harness.model.stored import StoredBlock, StoredRun
from harness.report.numbers import DASH, percent
from harness.report.requests import RequestView, request_view, scaled
from harness.report.words import arm_names

PAIRS = 400
"""Pairs with a drill-down; the paper's screening has 384."""

Ident = tuple[int, str]
"""(block pair, key): what the requests of a pair have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """One request in every arm: `requests` holds the baseline first."""

    anchor: str
    pair: int
    key: str
    replica: str
    values: tuple[str, ...]
    """Shown TTFT in s, one an arm in the order of `arm_names`; a dash where the arm has no such row."""
    change: str
    flags: tuple[str, ...]
    text: str
    """Lower-case words that the filter looks in."""
    requests: tuple[RequestView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilldown:
    """The pairs of the page by workload, and how many there are in all."""

    groups: tuple[tuple[str, tuple[PairView, ...]], ...]
    shown: int
    total: int
    flagged: int
    anchors: Mapping[Ident, str]


def drilldown(run: StoredRun, verdict: Verdict, *, limit: int = PAIRS) -> Drilldown:
    """Pairs of the whole run, at most `limit` of them, those with findings first in line."""
    order = _order(run.blocks)
    named: dict[tuple[int | None, str], list[str]] = {}
    for finding in verdict.findings:
        named.setdefault((finding.block, finding.subject), []).append(finding.rule)
    found = _flagged(run.blocks, named)
    flagged = [ident for ident in found if ident in order]
    chosen = set(flagged[:limit])
    for ident in order:
        if len(chosen) >= limit:
            break
        chosen.add(ident)
    rows = _rows(run, chosen)
    arms = arm_names(run)
    views = [
        _pair(ident, rows[ident], arms, found.get(ident, []))
        for ident in sorted(chosen, key=order.__getitem__)
        if ident in rows
    ]
    groups: dict[str, list[PairView]] = {}
    for view in views:
        groups.setdefault(view.key.split("/", 1)[0], []).append(view)
    return Drilldown(
        groups=tuple((workload, tuple(pairs)) for workload, pairs in groups.items()),
        shown=len(views),
        total=len(order),
        flagged=len(flagged),
        anchors={(view.pair, view.key): view.anchor for view in views},
    )


def _order(blocks: Sequence[StoredBlock]) -> dict[Ident, int]:
    """Every (pair, key), numbered pair by pair in the order in which it ran first."""
    found: dict[Ident, int] = {}
    for block in sorted(blocks, key=lambda block: (block.pair, block.position)):
        for key in block.requests.column("key").to_pylist():
            if key is not None:  # a row without a key belongs to no pair; the audit names it
                found.setdefault((block.pair, key), len(found))
    return found


def _flagged(
    blocks: Iterable[StoredBlock], named: Mapping[tuple[int | None, str], list[str]]
) -> dict[Ident, list[str]]:
    """Pairs that something was found in → rules of findings that name them (the rows' own rules come from the rows)."""
    found: dict[Ident, list[str]] = {}
    subjects = pa.array([subject for _, subject in named], pa.string())
    for block in blocks:
        table = block.requests
        length: Any = pc.list_value_length(table.column("rules"))
        has_rules = pc.fill_null(pc.greater(length, pa.scalar(0)), False)
        noted = pc.or_(has_rules, pc.or_(pc.is_valid(table.column("excluded")), pc.invert(table.column("ok"))))
        spoken = pc.is_in(table.column("key"), value_set=subjects)
        for key, by_row, by_name in zip(
            table.column("key").to_pylist(),
            noted.to_pylist(),
            spoken.to_pylist(),
            strict=True,
        ):
            if key is None or not (by_row or by_name):
                continue
            rules = [*named.get((block.position, key), []), *named.get((None, key), [])] if by_name else []
            if by_row or rules:
                found.setdefault((block.pair, key), []).extend(rules)
    return found


def _rows(run: StoredRun, chosen: set[Ident]) -> dict[Ident, list[dict[str, Any]]]:
    found: dict[Ident, list[dict[str, Any]]] = {}
    rank = {arm: index for index, arm in enumerate(arm_names(run))}
    for block in sorted(run.blocks, key=lambda block: (rank.get(block.plays, len(rank)), block.position)):
        keys = [key for pair, key in chosen if pair == block.pair]
        if not keys:
            continue
        wanted = block.requests.filter(pc.is_in(block.requests.column("key"), value_set=pa.array(keys, pa.string())))
        for row in wanted.to_pylist():
            found.setdefault((block.pair, row["key"]), []).append(row)
    return found


def _pair(ident: Ident, rows: Sequence[Mapping[str, Any]], arms: Sequence[str], rules: Sequence[str]) -> PairView:
    pair, key = ident
    views = tuple(request_view(row) for row in rows)
    shown = {view.plays: view.ttft for view in reversed(views)}
    flags = tuple(dict.fromkeys([*(flag for row in rows for flag in _flags(row)), *rules]))
    words = (key, f"pair {pair}", str(rows[0]["replica"]), *flags, *(view.verdict for view in views))
    return PairView(
        anchor=f"r{pair}-{rows[0]['seq']}",
        pair=pair,
        key=key,
        replica=str(rows[0]["replica"]),
        values=tuple(shown.get(arm, DASH) for arm in arms),
        change=_change(rows),
        flags=flags,
        text=" ".join(words).lower(),
        requests=views,
    )


def _flags(row: Mapping[str, Any]) -> list[str]:
    flags = list(row["rules"] or ())
    if not row["ok"]:
        flags.append(row["failure_kind"] or "failed")
    if row["excluded"]:
        flags.append(row["excluded"])
    return flags


def _change(rows: Sequence[Mapping[str, Any]]) -> str:
    """100·(ON/OFF − 1) of the TTFT of this one pair; only of exactly two usable rows."""
    if len(rows) != 2 or rows[0]["plays"] == rows[1]["plays"]:
        return DASH
    before, after = (scaled(row["ttft_ns"], row["time_scale"]) for row in rows)
    return DASH if not before or after is None else percent(100 * (after / before - 1), 1)
