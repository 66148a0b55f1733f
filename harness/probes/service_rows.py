"""What is kept of every request of layer 5, and the columns it is stored under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from harness.model.counting import Counter, Expectation, WindowCounters
from harness.model.findings import Finding
from harness.model.observation import Failed, Observation
from harness.model.payload import Payload
from harness.model.planned import PlannedRequest
from harness.probes.columns import schema
from harness.probes.service_causes import Cause
from harness.rules.answers import Judgement
from harness.rules.facts import summed


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request with what was counted around it. Hits are None where a counter does not exist."""

    part: str
    """`canary`, `warmup`, `plan` or `control`."""
    key: str
    unit: str
    step: str
    role: str
    replica: str
    payload_id: str
    salt: str | None
    payload_sha256: str
    planned_tokens: int
    prompt_tokens: int | None
    local_hits: int | None
    external_hits: int | None
    cached_tokens: int | None
    expected: Expectation
    loaded_chunks: int | None
    evicted_chunks: int | None
    allocation_failures: int | None
    transferred: bool
    ok: bool
    failure: str | None
    verdict: str | None
    cause: Cause | None
    asked: Mapping[str, int] | None
    answer: str
    control: str | None
    """Words of the salt control, where one was sent."""
    findings: tuple[Finding, ...]

    @property
    def reused(self) -> bool:
        """True where anything says that cached tokens were used."""
        return max((self.local_hits or 0) + (self.external_hits or 0), self.cached_tokens or 0) > 0


def row_of(
    part: str,
    request: PlannedRequest,
    payload: Payload,
    seen: Observation,
    counters: WindowCounters,
    *,
    expected: Expectation,
    pools: tuple[str, ...],
    transferred: bool,
    findings: Sequence[Finding],
    judgement: Judgement | None,
) -> Row:
    """The row of one finished request; cause and control come later, if at all."""
    failed = seen.outcome if isinstance(seen.outcome, Failed) else None
    return Row(
        part=part,
        key=request.key,
        unit=request.unit,
        step=request.step,
        role=request.role,
        replica=request.replica,
        payload_id=payload.payload_id,
        salt=payload.salt,
        payload_sha256=seen.body_sha256,
        planned_tokens=payload.prompt_tokens,
        prompt_tokens=seen.usage.prompt_tokens if seen.usage else None,
        local_hits=counters.value(request.replica, Counter.LOCAL_HITS),
        external_hits=counters.value(request.replica, Counter.EXTERNAL_HITS),
        cached_tokens=seen.usage.cached_tokens if seen.usage else None,
        expected=expected,
        loaded_chunks=summed(counters, pools, Counter.POOL_LOADED_CHUNKS),
        evicted_chunks=summed(counters, pools, Counter.POOL_EVICTED_CHUNKS),
        allocation_failures=summed(counters, pools, Counter.POOL_ALLOCATION_FAILURES),
        transferred=transferred,
        ok=seen.ok,
        failure=f"{failed.kind}: {failed.detail}" if failed else None,
        verdict=judgement.verdict if judgement else None,
        cause=None,
        asked=payload.expected,
        answer=seen.content,
        control=None,
        findings=tuple(findings),
    )


SCHEMA = schema(
    {
        "seq": "int",
        "part": "str",
        "key": "str",
        "unit": "str",
        "step": "str",
        "role": "str",
        "replica": "str",
        "payload_id": "str",
        "salt": "str",
        "payload_sha256": "str",
        "planned_tokens": "int",
        "prompt_tokens": "int",
        "local_hits": "int",
        "external_hits": "int",
        "cached_tokens": "int",
        "expected_local_min": "int",
        "expected_local_max": "int",
        "expected_external_min": "int",
        "expected_external_max": "int",
        "loaded_chunks": "int",
        "evicted_chunks": "int",
        "allocation_failures": "int",
        "transferred": "bool",
        "ok": "bool",
        "failure": "str",
        "verdict": "str",
        "cause": "str",
        "asked": "str",
        "answer": "str",
        "control": "str",
        "rules": "list[str]",
        "details": "list[str]",
    }
)
"""Columns of `service-requests.parquet`; every type is written down, whatever the values are (RES-1)."""

_NOT_A_COLUMN = frozenset({"expected", "findings", "asked"})


def to_table(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of `SCHEMA`, in the order they were sent."""
    return pa.Table.from_pylist([_values(seq, row) for seq, row in enumerate(rows)], schema=SCHEMA)


def _values(seq: int, row: Row) -> dict[str, Any]:
    plain = {name: getattr(row, name) for name in Row.__slots__ if name not in _NOT_A_COLUMN}
    bounds = {f"expected_{name}": getattr(row.expected, name) for name in Expectation.__slots__}
    return {
        "seq": seq,
        **plain,
        **bounds,
        "asked": orjson.dumps(row.asked).decode() if row.asked else None,
        "rules": [found.rule for found in row.findings],
        "details": [found.detail for found in row.findings],
    }
