"""What a results folder holds, as read back: the only input of analysis and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.model.findings import Finding
from harness.model.planned import Plan
from harness.model.screening import Screening

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlock:
    """One committed block. Tables follow `harness.model.rows`; `manifest` is manifest.json as parsed."""

    position: int
    arm: str
    plays: str
    pair: int
    path: str
    manifest: Mapping[str, Any]
    manifest_sha256: str
    requests: pa.Table
    warmups: pa.Table
    chunks: pa.Table | None
    """None when not loaded (large folders are audited without chunks)."""
    counters: pa.Table | None
    payloads: Mapping[str, Mapping[str, Any]]
    """payload_id → the fields of `Payload` as stored in payloads.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedBlock:
    """A block archived under `excluded/` or `superseded/`, with why."""

    position: int
    arm: str
    path: str
    reason: Mapping[str, Any]
    """rule, key, detail, counts, exit_code, at (UTC label), and `fix` where somebody noted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A whole results folder."""

    path: str
    run: str
    screening: Screening
    plan: Plan
    """Rebuilt from the stored declaration, never from the rows."""
    header: Mapping[str, Any]
    """run.json: versions, host, predecessor, options (such as unvalidated), validation verdict, block log."""
    blocks: tuple[StoredBlock, ...]
    excluded: tuple[ExcludedBlock, ...]
    superseded: tuple[ExcludedBlock, ...]
    file_findings: tuple[Finding, ...] = field(default=())
    """What reading itself found: missing files, digests, schema."""
