"""Stored rows and counters turned back into the values that `harness.rules` judges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness.model.counting import Counter, CounterDelta, Expectation, Increase, Missing, WindowCounters
from harness.model.observation import Completed, Failed, FailureKind, Observation, Stamps, Usage
from harness.rules.facts import RequestWindow
from harness.rules.windows import ConcurrencyWindow, WindowMember

if TYPE_CHECKING:
    from harness.analysis.bodies import Bodies
    from harness.analysis.counted import StoredCounters
    from harness.analysis.grid import Grid, IntArray
    from harness.model.planned import PlannedBlock, PlannedRequest
    from harness.model.screening import Arm, Screening

_OBSERVED = (
    "ok",
    "failure_kind",
    "http_status",
    "start_ns",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "answer",
)
"""Columns that `_observation` reads."""
_KINDS = {str(kind): kind for kind in FailureKind}
_ROW_COUNTERS = {
    "local_queries": Counter.LOCAL_QUERIES,
    "local_hits": Counter.LOCAL_HITS,
    "external_queries": Counter.EXTERNAL_QUERIES,
    "external_hits": Counter.EXTERNAL_HITS,
    "prompt_tokens_counted": Counter.PROMPT_TOKENS,
    "computed_tokens": Counter.COMPUTED_TOKENS,
    "preemptions": Counter.PREEMPTIONS,
}
_ROW_POOL = {
    "pool_hit_tokens": Counter.POOL_HIT_TOKENS,
    "pool_loaded_chunks": Counter.POOL_LOADED_CHUNKS,
    "pool_evicted_chunks": Counter.POOL_EVICTED_CHUNKS,
}


def request_window(
    grid: Grid,
    i: int,
    k: int,
    *,
    plan: PlannedBlock,
    screening: Screening,
    bodies: Bodies,
    stored: StoredCounters | None,
    bounds: IntArray,
) -> RequestWindow | None:
    """The window of one stored row; None where its body is unknown (which has a finding of its own)."""
    request = _request(plan, grid.layout.keys[k])
    block = grid.blocks[i]
    payload = None if request is None else bodies.payload(block, request.payload_id)
    if request is None or payload is None:
        return None
    row = grid.row(i, k)
    arm = screening.arm(plan.arm)
    replicas = tuple(replica.name for replica in screening.engine.replicas)
    if stored is not None and stored.has(request.key):
        counters, pools = stored.window(request.key), stored.pools(request.key, replicas)
    else:
        replicas = (request.replica,)  # the row knows nothing of the others
        counters, pools = _row_counters(row, request.replica, arm)
    return RequestWindow(
        request=request,
        payload=payload,
        observation=_observation(row, request),
        counters=counters,
        expectation=_expectation(bounds),
        arm=arm,
        engine=screening.engine,
        replicas=replicas,
        pools=pools,
        block=block.position,
    )


def windows(
    grid: Grid,
    i: int,
    *,
    plan: PlannedBlock,
    screening: Screening,
    bodies: Bodies,
    stored: StoredCounters,
    bounds: IntArray,
) -> Iterator[ConcurrencyWindow]:
    """The concurrency windows of one block whose rows are all there."""
    by_window: dict[str, list[PlannedRequest]] = {}
    for request in plan.requests:
        if request.window is not None:
            by_window.setdefault(request.window, []).append(request)
    replicas = tuple(replica.name for replica in screening.engine.replicas)
    for name, requests in by_window.items():
        members = [member for request in requests if (member := _member(grid, i, request, bodies, bounds)) is not None]
        if len(members) == len(requests):
            yield ConcurrencyWindow(
                key=name,
                members=tuple(members),
                counters=stored.window(name),
                arm=screening.arm(plan.arm),
                engine=screening.engine,
                replicas=replicas,
                pools=stored.pools(name, replicas),
                block=grid.blocks[i].position,
            )


def _member(grid: Grid, i: int, request: PlannedRequest, bodies: Bodies, bounds: IntArray) -> WindowMember | None:
    k = grid.layout.index[request.key]
    payload = bodies.payload(grid.blocks[i], request.payload_id)
    if payload is None or not grid.present[i, k]:
        return None
    row = grid.row(i, k, _OBSERVED)
    return WindowMember(
        request=request,
        payload=payload,
        observation=_observation(row, request),
        expectation=_expectation(bounds[:, k]),
    )


def _request(plan: PlannedBlock, key: str) -> PlannedRequest | None:
    return next((request for request in plan.requests if request.key == key), None)


def _observation(row: dict[str, Any], request: PlannedRequest) -> Observation:
    usage = None
    if row["prompt_tokens"] is not None:
        usage = Usage(
            prompt_tokens=row["prompt_tokens"],
            completion_tokens=row["completion_tokens"] or 0,
            cached_tokens=row["cached_tokens"],
        )
    failed = Failed(kind=_KINDS.get(row["failure_kind"], FailureKind.SHORT_STREAM), detail="as stored")
    return Observation(
        replica=request.replica,
        url="",
        http_status=row["http_status"],
        stamps=Stamps(start_ns=row["start_ns"] or 0),
        stamp_source="callback",
        outcome=Completed(finish_reason="as stored") if row["ok"] else failed,
        usage=usage,
        content=row["answer"] or "",
        reasoning="",
    )


def _expectation(bounds: IntArray) -> Expectation:
    local_min, local_max, external_min, external_max = (int(value) for value in bounds)
    return Expectation(local_min=local_min, local_max=local_max, external_min=external_min, external_max=external_max)


def _row_counters(row: dict[str, Any], replica: str, arm: Arm) -> tuple[WindowCounters, tuple[str, ...]]:
    nothing = Missing(reason="null in the stored row")
    here: dict[Counter, CounterDelta] = {
        counter: nothing if row[name] is None else Increase(before=0.0, after=float(row[name]))
        for name, counter in _ROW_COUNTERS.items()
    }
    deltas: dict[str, dict[Counter, CounterDelta]] = {replica: here}
    # A row with figures of a pool was read beside one, whatever the declaration says about this arm.
    pools = arm.services[:1] or (("pool",) if any(row[name] is not None for name in _ROW_POOL) else ())
    for pool in pools:
        deltas[pool] = {
            counter: Increase(before=0.0, after=float(row[name]))
            for name, counter in _ROW_POOL.items()
            if row[name] is not None
        }
    return WindowCounters(deltas=deltas), pools
