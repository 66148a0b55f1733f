"""One request, ready to be shown: stamps as a timeline, counters against what was expected, answer and hashes.

Times are scaled here and nowhere else in the drill-down: shown seconds = ns / 1e9 / time_scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.model.rulebook import RULES
from harness.report.numbers import DASH, count, milliseconds, seconds

Row = Mapping[str, Any]

_STAGES = (
    ("connect_start_ns", "connect begins"),
    ("connected_ns", "connected"),
    ("sent_ns", "body sent"),
    ("headers_ns", "headers"),
    ("first_byte_ns", "first byte"),
    ("role_ns", "role chunk"),
    ("first_reasoning_ns", "first reasoning"),
    ("first_content_ns", "first content"),
    ("last_content_ns", "last content"),
    ("finish_ns", "finish reason"),
    ("usage_ns", "usage"),
    ("done_ns", "[DONE]"),
    ("end_ns", "end"),
    ("recorded_ns", "row recorded"),
)
_SPANS = (
    ("connect", "start_ns", "connected_ns"),
    ("send", "connected_ns", "sent_ns"),
    ("wait", "sent_ns", "first_content_ns"),
    ("decode", "first_content_ns", "last_content_ns"),
    ("tail", "last_content_ns", "recorded_ns"),
)
_EXPECTED = {"local_hits": "local", "external_hits": "external"}
_COUNTERS = (
    ("local_queries", "local queries"),
    ("local_hits", "local hits"),
    ("external_queries", "external queries"),
    ("external_hits", "external hits"),
    ("prompt_tokens_counted", "prompt tokens counted"),
    ("computed_tokens", "computed"),
    ("cached_tokens", "usage.cached_tokens"),
    ("pool_hit_tokens", "pool lookup hits"),
    ("pool_loaded_chunks", "pool chunks loaded"),
    ("pool_evicted_chunks", "pool chunks evicted"),
    ("preemptions", "preemptions"),
)
_HASHES = ("payload_sha256", "answer_sha256", "namespace", "salt", "payload_id", "request_id")
_HEALTH = (
    ("loop_lag_max_ns", "event-loop lag"),
    ("late_send_ns", "late send"),
    ("gc_pause_ns", "garbage collection"),
    ("cpu_steal_ns", "CPU steal"),
    ("kernel_delay_max_ns", "kernel → reader, max"),
    ("kernel_delay_first_content_ns", "kernel → reader, first content"),
    ("overhead_ns", "harness overhead"),
    ("barrier_ns", "barriers"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One coloured stretch of the timeline, in 1/1000 of its length."""

    kind: str
    x: float
    width: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterLine:
    """A counter's increment beside the closed range it had to fall into; `ok` None where nothing is expected."""

    name: str
    measured: str
    expected: str
    ok: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """Everything the page says about one request of one arm."""

    arm: str
    plays: str
    block: int
    replica: str
    url: str
    ok: bool
    failure: str
    verdict: str
    hit_source: str
    ttft: str
    wall: str
    tokens: str
    time_scale: float
    stamp_source: str
    connection: str
    spans: tuple[Span, ...]
    stages: tuple[tuple[str, str], ...]
    counters: tuple[CounterLine, ...]
    hashes: tuple[tuple[str, str], ...]
    health: tuple[tuple[str, str], ...]
    answer: str
    expected: str
    notes: tuple[str, ...]


def request_view(row: Row) -> RequestView:
    """The view of one row of requests.parquet (`harness.model.rows.REQUESTS`)."""
    scale = float(row["time_scale"])
    return RequestView(
        arm=str(row["arm"]),
        plays=str(row["plays"]),
        block=int(row["block"]),
        replica=str(row["replica"]),
        url=row["url"] or "",
        ok=bool(row["ok"]),
        failure="" if row["ok"] else f"{row['failure_kind'] or 'failed'}: {row['failure_detail'] or ''}".rstrip(": "),
        verdict=row["verdict"] or DASH,
        hit_source=row["hit_source"] or "unknown",
        ttft=seconds(scaled(row["ttft_ns"], scale)),
        wall=seconds(scaled(_difference(row, "start_ns", "recorded_ns"), scale)),
        tokens=f"{count(row['prompt_tokens'])} in, {count(row['completion_tokens'])} out",
        time_scale=scale,
        stamp_source=row["stamp_source"] or "unknown",
        connection={True: "reused", False: "new"}.get(row["connection_reused"], "unknown"),
        spans=_spans(row, scale),
        stages=_stages(row, scale),
        counters=tuple(_counter(row, column, name) for column, name in _COUNTERS if row[column] is not None),
        hashes=tuple((name, str(row[name])) for name in _HASHES if row[name]),
        health=tuple((name, f"{milliseconds(row[column])} ms") for column, name in _HEALTH if row[column] is not None),
        answer=row["answer"] or "",
        expected=row["expected"] or "",
        notes=_notes(row),
    )


def scaled(value_ns: float | None, scale: float) -> float | None:
    """Nanoseconds as the seconds that are shown: ns / 1e9 / time_scale."""
    return None if value_ns is None else value_ns / 1e9 / scale


def _difference(row: Row, first: str, second: str) -> int | None:
    start, end = row[first], row[second]
    return None if start is None or end is None else end - start


def _stages(row: Row, scale: float) -> tuple[tuple[str, str], ...]:
    shown = []
    for column, name in _STAGES:
        offset = _difference(row, "start_ns", column)
        if offset is not None:
            shown.append((name, milliseconds(offset, scale=scale)))
    return tuple(shown)


def _spans(row: Row, scale: float) -> tuple[Span, ...]:
    start = row["start_ns"]
    stamps = [row[column] for column, _ in _STAGES if row[column] is not None]
    if start is None or not stamps or max(stamps) <= start:
        return ()
    length = max(stamps) - start
    spans = []
    for kind, first, second in _SPANS:
        left, right = row[first], row[second]
        if left is None or right is None or right < left:
            continue
        label = f"{kind}: {milliseconds(right - left, scale=scale)} ms"
        spans.append(
            Span(kind=kind, x=1000 * (left - start) / length, width=1000 * (right - left) / length, label=label),
        )
    return tuple(spans)


def _counter(row: Row, column: str, name: str) -> CounterLine:
    value = row[column]
    prefix = _EXPECTED.get(column)
    low, high = (row[f"expected_{prefix}_min"], row[f"expected_{prefix}_max"]) if prefix else (None, None)
    if low is None or high is None:
        return CounterLine(name=name, measured=count(value), expected="", ok=None)
    text = count(low) if low == high else f"{count(low)} to {count(high)}"
    return CounterLine(name=name, measured=count(value), expected=text, ok=low <= value <= high)


def _notes(row: Row) -> tuple[str, ...]:
    notes = [f"{rule}: {RULES[rule].title}" if rule in RULES else rule for rule in row["rules"] or ()]
    if row["excluded"] and row["excluded"] not in (row["rules"] or ()):
        notes.append(f"excluded by {row['excluded']}")
    if row["client_limited"]:
        notes.append(f"client-limited: {row['client_limited']}")
    if row["sim_missed"]:
        notes.append(
            f"the simulator missed {row['sim_missed']} deadline(s), by up to {milliseconds(row['sim_max_late_ns'])} ms"
        )
    if row["answer_in_history"]:
        notes.append(
            "the answer already stands in the history: this check does not verify recovery of the distant prefix"
        )
    return tuple(notes)
