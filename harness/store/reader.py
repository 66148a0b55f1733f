"""Read a results folder back and verify digests, schema and log. What is wrong becomes findings, not exceptions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from harness.model.errors import HarnessError, SchemaError
from harness.model.findings import Finding
from harness.model.planned import Plan
from harness.model.rulebook import rule
from harness.model.screening import Screening
from harness.model.stored import ExcludedBlock, StoredBlock, StoredRun
from harness.store import durable
from harness.store.folder import DECLARATION, HEADER, block_folders, current, read_log
from harness.store.payloads import StoredPayloads
from harness.store.schemas import conform, empty_table
from harness.store.writer import FILES, MANIFEST, REASON

FIX = "fix.txt"
"""Where somebody may note, in an excluded block's folder, what was done about its cause."""

Rebuild = Callable[[bytes], tuple[Screening, Plan]]
"""Canonical declaration → the screening and its plan: handed in, so that the store needs neither config nor plan."""


def read_run(path: Path, rebuild: Rebuild, *, chunks: bool = True) -> StoredRun:
    """Everything a results folder holds. `chunks=False` leaves the chunk and counter tables unread (None).

    Raises SchemaError only where there is no declaration to read the folder by.
    """
    screening, plan = _rebuild(path, rebuild)
    header, findings = _header(path, screening)
    folders = block_folders(path / "blocks")
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        read = list(pool.map(lambda folder: _read_block(*folder, chunks=chunks), folders))
    blocks = tuple(block for block, _ in read if block is not None)
    for _, found in read:
        findings.extend(found)
    excluded, superseded = _archived(path, "excluded", findings), _archived(path, "superseded", findings)
    return StoredRun(
        path=str(path),
        run=path.name,
        screening=screening,
        plan=plan,
        header={**header, "blocks": [asdict(entry) for entry in current(read_log(path))]},
        blocks=blocks,
        excluded=excluded,
        superseded=superseded,
        file_findings=tuple(findings),
    )


def _found(rule_id: str, subject: str, detail: str, block: int | None = None) -> Finding:
    return Finding(rule=rule_id, severity=rule(rule_id).severity, subject=subject, detail=detail, block=block)


def _rebuild(path: Path, rebuild: Rebuild) -> tuple[Screening, Plan]:
    try:
        return rebuild((path / DECLARATION).read_bytes())
    except FileNotFoundError as error:
        hint = "Give the folder of one run, such as results/quick/20261130-174611."
        raise SchemaError(f"{path} is not a results folder: it has no {DECLARATION}", hint=hint) from error
    except HarnessError as error:
        raise SchemaError(f"{path / DECLARATION}: {error.message}", hint="Restore the folder.") from error


def _header(path: Path, screening: Screening) -> tuple[dict[str, Any], list[Finding]]:
    header, fault = _json(path / HEADER)
    if fault:
        return {}, [_found("audit.file_missing", HEADER, f"{HEADER}: {fault}")]
    if header.get("declaration_digest") not in (None, screening.digest):
        words = "declaration.json is not the declaration that run.json names"
        return header, [_found("audit.settings", DECLARATION, words)]
    return header, []


def _json(path: Path) -> tuple[dict[str, Any], str | None]:
    try:
        value = orjson.loads(path.read_bytes())
    except OSError as error:
        return {}, error.strerror or str(error)
    except orjson.JSONDecodeError as error:
        return {}, f"no JSON: {error}"
    return (value, None) if isinstance(value, dict) else ({}, "no JSON object")


def _read_block(position: int, arm: str, path: Path, *, chunks: bool) -> tuple[StoredBlock | None, list[Finding]]:
    name = path.name
    manifest, fault = _json(path / MANIFEST)
    if fault:
        return None, [_found("audit.no_manifest", name, f"block {name}: {MANIFEST}: {fault}", position)]
    raw, findings = _verify(path, manifest, position)
    tables: dict[str, pa.Table] = {}
    for stem in FILES if chunks else ("requests", "warmups"):
        tables[stem], wrong = _table(raw.get(f"{stem}.parquet"), FILES[stem])
        findings.extend(_found("audit.schema", f"{name}/{stem}.parquet", words, position) for words in wrong)
    block = StoredBlock(
        position=position,
        arm=arm,
        plays=str(manifest.get("plays", arm)),
        pair=int(manifest.get("pair") or 0),
        path=str(path),
        manifest={**manifest, "files": {name: entry["sha256"] for name, entry in _files(manifest).items()}},
        manifest_sha256=durable.digest((path / MANIFEST).read_bytes()),
        requests=tables["requests"],
        warmups=tables["warmups"],
        chunks=tables.get("chunks"),
        counters=tables.get("counters"),
        payloads=StoredPayloads(path / "payloads.json"),
    )
    return block, findings


def _files(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """File name → SHA-256 and size; entries of another shape cannot be compared and count as changed."""
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        return {}
    shape = {"sha256", "bytes"}
    unknown = dict.fromkeys(shape)
    return {
        name: entry if isinstance(entry, dict) and entry.keys() == shape else unknown for name, entry in listed.items()
    }


def _verify(path: Path, manifest: Mapping[str, Any], position: int) -> tuple[dict[str, bytes], list[Finding]]:
    """Compare every file with the manifest; the bytes of Parquet files are kept, so that each is read once."""
    kept: dict[str, bytes] = {}
    findings: list[Finding] = []
    listed = _files(manifest)
    present = durable.list_files(path)
    for name, entry in listed.items():
        subject = f"{path.name}/{name}"
        if name not in present:
            findings.append(_found("audit.file_missing", subject, f"{subject} is missing", position))
            continue
        data = durable.read_file(present[name])
        if entry != {"bytes": len(data), "sha256": durable.digest(data)}:
            words = f"{subject}: its {len(data):,} bytes are not those that the manifest names"
            findings.append(_found("audit.digest", subject, words, position))
        if name.endswith(".parquet"):
            kept[name] = data
    for name in sorted(present.keys() - listed.keys() - {MANIFEST, FIX}):
        subject = f"{path.name}/{name}"
        findings.append(_found("audit.digest", subject, f"{subject} is not in the manifest", position))
    return kept, findings


def _table(data: bytes | None, table: str) -> tuple[pa.Table, list[str]]:
    if data is None:
        return empty_table(table), []  # a missing file has its own finding
    try:
        # Files are small and read side by side: threads inside one read cost more than they give.
        stored = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        return empty_table(table), [f"not readable as Parquet: {error}"]
    return conform(stored, table)


def _archived(path: Path, kind: str, findings: list[Finding]) -> tuple[ExcludedBlock, ...]:
    out = []
    gone = {entry["manifest_sha256"]: entry for entry in read_log(path) if entry["event"] == kind}
    gone.pop(None, None)
    for position, tail, folder in block_folders(path / kind):
        reason, fault = _json(folder / REASON)
        manifest, no_manifest = _json(folder / MANIFEST)
        if fault:
            findings.append(_found("audit.file_missing", f"{kind}/{folder.name}", f"{REASON}: {fault}", position))
        if not no_manifest:
            gone.pop(durable.digest((folder / MANIFEST).read_bytes()), None)
        if kind == "excluded" and not no_manifest:
            findings.extend(_verify(folder, manifest, position)[1])
        out.append(_archive_entry(position, tail, folder, manifest, reason))
    for entry in gone.values():
        words = f"{kind} block {entry['position']} ({entry['arm']}) was recorded, its folder is gone or changed"
        findings.append(
            _found("audit.file_missing", f"{kind}/{entry['position']:02d}-{entry['arm']}", words, entry["block"])
        )
    return tuple(out)


def _archive_entry(
    position: int, tail: str, folder: Path, manifest: Mapping[str, Any], reason: Mapping[str, Any]
) -> ExcludedBlock:
    fix = folder / FIX
    noted = {"fix": fix.read_text(encoding="utf-8").strip()} if fix.is_file() else {}
    arm = str(manifest.get("arm") or reason.get("arm") or tail.rpartition("-")[0])
    return ExcludedBlock(position=position, arm=arm, path=str(folder), reason={**reason, **noted})
