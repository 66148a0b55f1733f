"""Made-up stored rows of one block: counters that follow the rules, times that follow a noise model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from synthetic_plan import CHUNK, hexed, payload

from harness.model.planned import PlannedBlock, PlannedRequest
from harness.model.rows import COUNTERS, REQUESTS, Column
from harness.model.screening import Screening
from harness.rules.expect import expectation

ARROW = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "list[str]": pa.list_(pa.string()),
}

# seconds: size → role → (without sharing, with sharing)
TTFT = {
    "8k": {"cold": (1.157, 1.162), "local": (0.050, 0.052), "cross": (1.161, 0.095)},
    "32k": {"cold": (5.254, 5.265), "local": (0.181, 0.184), "cross": (5.252, 0.221)},
    "128k": {"cold": (31.755, 31.774), "local": (0.484, 0.492), "cross": (31.715, 0.605)},
    "256k": {"cold": (92.108, 92.188), "local": (0.557, 0.574), "cross": (92.047, 0.790)},
}
TOKEN_S = 0.014  # seconds an output token
SLOW = {  # seconds that a later turn takes beyond the chains' figures: (size, placement, shares)
    ("32k", "alternating", False): 0.25,
    ("128k", "fixed", False): 0.35,
    ("128k", "fixed", True): 0.35,
    ("128k", "alternating", False): 0.9,
    ("128k", "alternating", True): 0.25,
}


# --- rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How the made-up times vary. All of them are standard deviations or slopes on the log scale."""

    effect: float | None = None
    """log ON/OFF of every duration; None takes the published effect of each cell."""
    request_sd: float = 0.002
    block_sd: float = 0.0
    drift: float = 0.0
    """Per block position."""
    seed: int = 0


def _base_seconds(request: PlannedRequest, shares: bool) -> tuple[float, int]:
    """(TTFT in s, output tokens) before noise."""
    table = TTFT.get(request.size, {"cold": (0.05, 0.05), "local": (0.01, 0.01), "cross": (0.05, 0.02)})
    hit = "local" if request.after_same_replica else "cross" if request.after_any_replica else "cold"
    role = {"receiver_local": "local", "hot": "local"}.get(request.role, request.role)
    kind = hit if role in ("turn", "warmup") else role
    ttft = table[kind][1 if shares else 0]
    slow = 0.0 if hit == "cold" or request.window else SLOW.get((request.size, request.placement or "", shares), 0.0)
    return ttft + slow, request.forced_tokens or (54 if role == "turn" else 14)


def template(requests: Sequence[PlannedRequest], declared: Screening, reach: str) -> dict[str, Any]:
    """Columns of one block that depend on the plan and the arm's reach only."""
    by_payload = {r.payload_id: r for r in requests}
    built = [payload(r, by_payload) for r in requests]
    expect = [
        expectation(r, payload=p, engine=declared.engine, reach=reach) for r, p in zip(requests, built, strict=True)
    ]  # type: ignore[arg-type]
    n = np.array([p.prompt_tokens for p in built])
    local = np.array([e.local_max for e in expect])
    external = np.array([e.external_max for e in expect])
    base = [_base_seconds(r, reach == "all") for r in requests]
    columns: dict[str, Any] = {
        name: [getattr(r, name) for r in requests]
        for name in (
            "key",
            "seq",
            "warmup",
            "workload",
            "unit",
            "step",
            "role",
            "turn",
            "size",
            "nominal_tokens",
            "placement",
            "window",
            "session",
            "replica",
            "payload_id",
            "time_scale",
            "max_tokens",
            "forced_tokens",
            "check",
            "answer_in_history",
        )
    }
    single = np.array([r.window is None for r in requests])
    shared = reach != "none"
    pool = np.where(external > 0, np.minimum(external + local + 1, n) // CHUNK * CHUNK, 0)
    columns |= {
        "namespace": [p.namespace for p in built],
        "salt": [p.salt for p in built],
        "payload_sha256": [p.sha256 for p in built],
        "payload_bytes": [p.nbytes for p in built],
        "expected": [json.dumps(dict(p.expected)) if p.expected else None for p in built],
        "answer": [json.dumps(dict(p.expected)) if p.expected else "text" for p in built],
        "prompt_tokens": n,
        "planned_tokens": n,
        "completion_tokens": np.array([tokens for _, tokens in base]),
        "cached_tokens": local + external,
        "local_queries": _where(single, n),
        "local_hits": _where(single, local),
        "external_queries": _where(single, n - local if shared else np.zeros_like(n)),
        "external_hits": _where(single, external),
        "prompt_tokens_counted": _where(single, n),
        "computed_tokens": _where(single, n - local - external),
        "preemptions": _where(single, np.zeros_like(n)),
        "pool_hit_tokens": _where(single & shared, pool),
        "pool_loaded_chunks": _where(single & shared, -(-external // CHUNK)),
        "pool_evicted_chunks": _where(single & shared, np.zeros_like(n)),
        "expected_local_min": [e.local_min for e in expect],
        "expected_local_max": [e.local_max for e in expect],
        "expected_external_min": [e.external_min for e in expect],
        "expected_external_max": [e.external_max for e in expect],
        "verdict": [{"exact": "correct", "forced": "forced_ok", "none": "unchecked"}[r.check] for r in requests],
        "_ttft": np.array([ttft for ttft, _ in base]),
    }
    columns["answer_sha256"] = [hexed(text) for text in columns["answer"]]
    return columns


def _where(mask: np.ndarray, values: np.ndarray) -> pa.Array:
    return pa.array(values, mask=~mask)


def _times(requests: Sequence[PlannedRequest], cols: dict[str, Any], factor: np.ndarray, start: int) -> dict[str, Any]:
    """Stamps of a block: sequential, except that the sessions of a window run side by side."""
    scale = np.array([r.time_scale for r in requests])
    ttft = (cols["_ttft"] * factor * 1e9 * scale).astype(np.int64)
    tokens = np.asarray(cols["completion_tokens"])
    decode = ((tokens - 1) * TOKEN_S * factor * 1e9 * scale).astype(np.int64)
    total = ttft + decode + 2_000_000
    began = np.empty(len(requests), dtype=np.int64)
    clock: dict[tuple[str | None, int | None], int] = {}
    now, window, opened = start, None, start
    for i, r in enumerate(requests):
        if r.window != window:
            now = max([now, *clock.values()])
            clock, window, opened = {}, r.window, now
        if r.window is None:
            began[i] = now
            now += int(total[i]) + 1_000_000
        else:
            began[i] = clock.get((r.window, r.session), opened)
            clock[(r.window, r.session)] = int(began[i] + total[i])
    connected = began + 100_000
    first = began + ttft
    last = first + decode
    return {
        "start_ns": began,
        "connect_start_ns": began + 10_000,
        "connected_ns": connected,
        "sent_ns": connected + 20_000,
        "headers_ns": first - 1_000,
        "first_byte_ns": first - 1_000,
        "role_ns": first - 1_000,
        "first_content_ns": first,
        "last_content_ns": last,
        "finish_ns": last,
        "usage_ns": last + 500_000,
        "done_ns": last + 600_000,
        "end_ns": last + 700_000,
        "recorded_ns": last + 1_500_000,
        "ttft_ns": first - began,
        "ttft_after_connect_ns": first - connected,
        "connect_ns": np.full(len(requests), 90_000),
        "decode_rate": pa.array((tokens - 1) / np.maximum(decode, 1) * 1e9, mask=decode <= 0),
    }


def table(columns: Mapping[str, Any], schema: Sequence[Column], rows: int) -> pa.Table:
    arrays = []
    for column in schema:
        kind = ARROW[column.type]
        value = columns.get(column.name)
        arrays.append(
            pa.nulls(rows, kind)
            if value is None
            else pa.array(value).cast(kind)
            if isinstance(value, np.ndarray | pa.Array)
            else pa.array(value, kind)
        )
    return pa.table(arrays, names=[column.name for column in schema])


def rows(
    requests: Sequence[PlannedRequest], block: PlannedBlock, declared: Screening, noise: Noise, cols: dict[str, Any]
) -> pa.Table:
    rng = np.random.default_rng((noise.seed, block.position, int(requests[0].warmup)))
    shift = rng.normal(0, noise.block_sd) + noise.drift * (block.position - 1)
    if noise.effect is not None and block.plays != declared.baseline:
        shift += noise.effect
    factor = np.exp(shift + rng.normal(0, noise.request_sd, len(requests)))
    start = 10**15 + block.position * 10**12 + (0 if requests[0].warmup else 10**11)
    count = len(requests)
    columns = (
        cols
        | _times(requests, cols, factor, start)
        | {
            "screening": [declared.name] * count,
            "run": ["20261130-000000"] * count,
            "block": [block.position] * count,
            "arm": [block.arm] * count,
            "plays": [block.plays] * count,
            "pair": [block.pair] * count,
            "url": ["http://" + r.replica.lower() for r in requests],
            "connection_reused": [False] * count,
            "stamp_source": ["kernel"] * count,
            "http_status": [200] * count,
            "ok": [True] * count,
            "finish_reason": ["stop"] * count,
            "content_chunks": cols["completion_tokens"],
            "coalesced_max": [1] * count,
            "hit_source": ["unknown"] * count,
            "rules": [[] for _ in range(count)],
            "overhead_ns": [5_000_000] * count,
            "barrier_ns": [1_000_000] * count,
        }
    )
    return table(columns, REQUESTS, count)


def counters(requests: Sequence[PlannedRequest], block: PlannedBlock, cols: dict[str, Any], reach: str) -> pa.Table:
    """Counter rows of the concurrency windows: sums per replica, as scraped around each window."""
    out: list[dict[str, Any]] = []
    windows = dict.fromkeys(r.window for r in requests if r.window)
    for window in windows:
        for replica in "AB":
            inside = [i for i, r in enumerate(requests) if r.window == window and r.replica == replica]
            n = sum(int(cols["prompt_tokens"][i]) for i in inside)
            cached = [int(cols["cached_tokens"][i]) for i in inside]
            local = [int(cols["expected_local_max"][i]) for i in inside]
            external = sum(cached) - sum(local)
            values = {
                "local_queries": n,
                "local_hits": sum(local),
                "prompt_tokens": n,
                "preemptions": 0,
                "external_queries": 0 if reach == "none" else n - sum(local),
                "external_hits": external,
                "computed_tokens": n - sum(cached),
            }
            out += [
                {
                    "block": block.position,
                    "pair": block.pair,
                    "key": window,
                    "target": replica,
                    "counter": counter,
                    "before": 0.0,
                    "after": float(value),
                    "delta": value,
                    "status": "increase",
                }
                for counter, value in values.items()
            ]
    return table({c.name: [row.get(c.name) for row in out] for c in COUNTERS}, COUNTERS, len(out))
