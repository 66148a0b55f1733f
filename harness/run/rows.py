"""Rows of `requests`, `chunks` and `counters` from what was planned, seen and counted. Pure; absent is None."""

from __future__ import annotations

import hashlib
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from harness.model.counting import Counter, CounterDelta, Expectation, Increase, Missing, Snapshot, WindowCounters
from harness.model.findings import Finding
from harness.model.observation import Completed, Failed, Observation, Stamps
from harness.model.payload import Payload
from harness.model.planned import PlannedBlock, PlannedRequest
from harness.rules.facts import summed
from harness.rules.outcomes import excluding

Row = dict[str, Any]

_AT_REPLICA: Mapping[str, Counter] = {
    "local_queries": Counter.LOCAL_QUERIES,
    "local_hits": Counter.LOCAL_HITS,
    "external_queries": Counter.EXTERNAL_QUERIES,
    "external_hits": Counter.EXTERNAL_HITS,
    "prompt_tokens_counted": Counter.PROMPT_TOKENS,
    "computed_tokens": Counter.COMPUTED_TOKENS,
}
_AT_POOLS: Mapping[str, Counter] = {
    "pool_hit_tokens": Counter.POOL_HIT_TOKENS,
    "pool_loaded_chunks": Counter.POOL_LOADED_CHUNKS,
    "pool_evicted_chunks": Counter.POOL_EVICTED_CHUNKS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What all rows of one block share."""

    screening: str
    run: str
    block: PlannedBlock
    replicas: tuple[str, ...]
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything about one request after its window: the input of its row."""

    request: PlannedRequest
    payload: Payload
    observation: Observation
    expectation: Expectation
    verdict: str | None
    recorded_ns: int
    counters: WindowCounters | None
    """None inside a concurrency window, whose counters belong to the whole of it."""
    findings: tuple[Finding, ...] = ()
    limited: str | None = None
    """Which threshold of the client's own health the row passed, in words."""
    overhead_ns: int | None = None
    barrier_ns: int | None = None


def request_row(identity: Identity, measured: Measured) -> Row:
    """The row of one request in `requests.parquet` or `warmups.parquet`."""
    return {
        **_identity(identity, measured.request.key),
        **_planned(measured.request),
        **_body(measured.payload, measured.observation),
        **_stamps(measured),
        **_outcome(measured),
        **_answer(measured),
        **_counted(identity, measured),
        **_health(measured.observation),
        "client_limited": measured.limited,
        "overhead_ns": measured.overhead_ns,
        "barrier_ns": measured.barrier_ns,
        "rules": [found.rule for found in measured.findings],
        "excluded": excluding(measured.findings),
    }


def chunk_rows(identity: Identity, request: PlannedRequest, seen: Observation) -> list[Row]:
    """One row an SSE event."""
    return [
        {
            "block": identity.block.position,
            "pair": identity.block.pair,
            "key": request.key,
            "event": event.index,
            "read": event.read_index,
            "at_ns": event.at_ns,
            "user_ns": event.user_ns,
            "kind": event.kind,
            "chars": None if event.text is None else len(event.text),
            "completion_tokens": event.completion_tokens,
            "finish_reason": event.finish_reason,
        }
        for event in seen.events
    ]


def counter_rows(
    identity: Identity,
    key: str,
    counters: WindowCounters,
    before: Mapping[str, Snapshot],
    after: Mapping[str, Snapshot],
) -> list[Row]:
    """One row a target and counter around one request or one concurrency window."""
    return [
        {
            "block": identity.block.position,
            "pair": identity.block.pair,
            "key": key,
            "target": target,
            "counter": str(counter),
            **_delta(delta),
            "before_ns": before[target].at_ns if target in before else None,
            "after_ns": after[target].at_ns if target in after else None,
        }
        for target, deltas in counters.deltas.items()
        for counter, delta in deltas.items()
    ]


def decode_rate(completion_tokens: int | None, stamps: Stamps) -> float | None:
    """(N_out - 1) / (t_last - t_first), tokens per second of unscaled time; None below 2 tokens or without usage."""
    first, last = stamps.first_content_ns, stamps.last_content_ns
    if completion_tokens is None or completion_tokens < 2 or first is None or last is None or last <= first:
        return None
    return (completion_tokens - 1) / ((last - first) / 1e9)


def hit_source(local: int | None, external: int | None) -> str:
    """Where the hits came from; a missing external series beside known local hits counts as none there."""
    if local is None:
        return "unknown"
    names = [name for name, hits in (("local", local), ("external", external)) if hits]
    return "+".join(names) or "none"


def _identity(identity: Identity, key: str) -> Row:
    block = identity.block
    return {
        "screening": identity.screening,
        "run": identity.run,
        "block": block.position,
        "arm": block.arm,
        "plays": block.plays,
        "pair": block.pair,
        "key": key,
    }


def _planned(request: PlannedRequest) -> Row:
    same = (
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
    )
    more = (
        "session",
        "replica",
        "payload_id",
        "time_scale",
        "max_tokens",
        "forced_tokens",
        "check",
        "answer_in_history",
    )
    return {name: getattr(request, name) for name in (*same, *more)}


def _body(payload: Payload, seen: Observation) -> Row:
    return {
        "url": seen.url,
        "namespace": payload.namespace,
        "salt": payload.salt,
        "payload_sha256": seen.body_sha256 or None,
        "payload_bytes": payload.nbytes,
        "planned_tokens": payload.prompt_tokens,
        "connection_reused": seen.connection_reused,
        "request_id": seen.request_id,
        "stamp_source": seen.stamp_source,
    }


def _stamps(measured: Measured) -> Row:
    stamps = measured.observation.stamps
    names = ("start", "connect_start", "connected", "sent", "headers", "first_byte", "role", "first_reasoning")
    later = ("first_content", "last_content", "finish", "usage", "done", "end")
    return {
        **{f"{name}_ns": getattr(stamps, f"{name}_ns") for name in (*names, *later)},
        "recorded_ns": measured.recorded_ns,
        "ttft_ns": _between(stamps.start_ns, stamps.first_content_ns),
        "ttft_after_connect_ns": _between(stamps.connected_ns, stamps.first_content_ns),
        "connect_ns": _between(stamps.connect_start_ns, stamps.connected_ns),
    }


def _outcome(measured: Measured) -> Row:
    seen = measured.observation
    failed = seen.outcome if isinstance(seen.outcome, Failed) else None
    contents = [event for event in seen.events if event.kind == "content"]
    shared = Tally(event.read_index for event in seen.events)
    usage = seen.usage
    return {
        "http_status": seen.http_status,
        "ok": seen.ok,
        "failure_kind": str(failed.kind) if failed else None,
        "failure_detail": failed.detail if failed else None,
        "finish_reason": seen.outcome.finish_reason if isinstance(seen.outcome, Completed) else None,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "decode_rate": decode_rate(usage.completion_tokens if usage else None, seen.stamps),
        "content_chunks": len(contents),
        "coalesced_max": max(shared.values(), default=None),
        "first_chunk_tokens": contents[0].completion_tokens if contents else None,
    }


def _answer(measured: Measured) -> Row:
    seen, expected = measured.observation, measured.payload.expected
    said = seen.content if seen.ok or seen.content else None
    return {
        "verdict": measured.verdict,
        "expected": None if expected is None else orjson.dumps(dict(expected)).decode(),
        "answer": said,
        "answer_sha256": None if said is None else hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest(),
    }


def _counted(identity: Identity, measured: Measured) -> Row:
    counters, expected = measured.counters, measured.expectation
    at = measured.request.replica
    here = {name: counters.value(at, counter) if counters else None for name, counter in _AT_REPLICA.items()}
    pools = {name: summed(counters, identity.pools, c) if counters else None for name, c in _AT_POOLS.items()}
    return {
        **here,
        **pools,
        "preemptions": summed(counters, identity.replicas, Counter.PREEMPTIONS) if counters else None,
        "hit_source": hit_source(here["local_hits"], here["external_hits"]),
        "expected_local_min": expected.local_min,
        "expected_local_max": expected.local_max,
        "expected_external_min": expected.external_min,
        "expected_external_max": expected.external_max,
    }


def _health(seen: Observation) -> Row:
    health = seen.health
    return {
        **{name: getattr(health, name) for name in health.__slots__},
        "sim_missed": seen.sim_missed,
        "sim_max_late_ns": seen.sim_max_late_ns,
    }


def _delta(delta: CounterDelta) -> Row:
    if isinstance(delta, Missing):
        return {"before": None, "after": None, "delta": None, "status": "missing", "reason": delta.reason}
    status = "increase" if isinstance(delta, Increase) else "reset"
    increment = delta.delta if isinstance(delta, Increase) else None
    return {"before": delta.before, "after": delta.after, "delta": increment, "status": status, "reason": None}


def _between(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else later - earlier


def findings_of(findings: Iterable[Finding], key: str) -> tuple[Finding, ...]:
    """The findings about one request."""
    return tuple(found for found in findings if found.subject == key)
