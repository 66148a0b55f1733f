"""Every file of every block against its manifest, by as many processes as there are cores where blocks are many.

What is verified: each file below a block's folder is listed in its manifest with its size and SHA-256 and has exactly
these, no listed file is missing, and every table has the schema. Each byte is read and hashed once here, bodies
included: a body of both blocks of a pair is stored twice, so it is hashed twice. Tables are read a second time, by
columns, when their rows are asked for.

A block holds some 170 small files. Opening, reading and hashing one takes ten microseconds, nearly all of them with
the interpreter's lock held: threads do not help, processes do. They are started fresh rather than forked, because the
caller may have threads. The worker's results are small: findings, and the manifest without its list of files.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from harness.model.findings import Finding
from harness.model.rulebook import rule
from harness.store import durable
from harness.store.footers import Shape, shape_of
from harness.store.writer import FILES, MANIFEST

FIX = "fix.txt"
"""Where somebody may note, in an excluded block's folder, what was done about its cause."""
MANY = 100
"""Blocks from which starting processes (half a second each) pays."""
AT_ONCE = 25
"""Blocks a worker takes at a time."""

Folder = tuple[int, str, Path]
"""(position, arm, path) of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One block whose files were compared with its manifest."""

    manifest: bytes | None
    """manifest.json without its list of files; None where there is none to read."""
    manifest_sha256: str = ""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """File stem → what is known about its table."""
    findings: tuple[Finding, ...] = ()


def workers(blocks: int) -> Executor | None:
    """Processes for a folder of that many blocks, None where they would not pay; they end with their last user.

    They are started fresh rather than forked, because the caller may have threads.
    """
    if blocks < MANY:
        return None
    return ProcessPoolExecutor(max_workers=os.cpu_count() or 1, mp_context=multiprocessing.get_context("spawn"))


def checking(folders: Sequence[Folder], *, stems: Sequence[str], pool: Executor | None) -> Iterator[Checked]:
    """Check all blocks, in order; with workers, they have begun when this returns."""
    check = partial(check_block, stems=tuple(stems))
    return map(check, folders) if pool is None else pool.map(check, folders, chunksize=AT_ONCE)


def check_block(folder: Folder, *, stems: Sequence[str]) -> Checked:
    """One block: its manifest, every file, and the schema of the tables named by `stems`."""
    position, _, path = folder
    name = path.name
    manifest, raw, fault = read_json(path / MANIFEST)
    if fault:
        words = f"block {name}: {MANIFEST}: {fault}"
        return Checked(manifest=None, findings=(found("audit.no_manifest", name, words, position),))
    tables, findings = compare(path, manifest, position)
    shapes = {}
    for stem in stems:
        data = tables.get(f"{stem}.parquet")  # a missing file has its own finding
        shapes[stem] = Shape() if data is None else shape_of(data, FILES[stem])
        subject = f"{name}/{stem}.parquet"
        findings.extend(found("audit.schema", subject, words, position) for words in shapes[stem].wrong)
    rest = {key: value for key, value in manifest.items() if key != "files"}
    return Checked(
        manifest=orjson.dumps(rest), manifest_sha256=durable.digest(raw), shapes=shapes, findings=tuple(findings)
    )


def compare(path: Path, manifest: Mapping[str, Any], position: int) -> tuple[dict[str, bytes], list[Finding]]:
    """Every file of a block's folder against the manifest; returns the bytes of its tables, and what was found."""
    kept: dict[str, bytes] = {}
    findings: list[Finding] = []
    listed = listed_files(manifest)
    present = durable.list_files(path)
    for name, (sha256, size) in listed.items():
        location = present.get(name)
        if location is None:
            subject = f"{path.name}/{name}"
            findings.append(found("audit.file_missing", subject, f"{subject} is missing", position))
            continue
        data = durable.read_file(location, listed=size)
        if size != len(data) or sha256 != durable.digest(data):
            subject = f"{path.name}/{name}"
            words = f"{subject}: its {len(data):,} bytes are not those that the manifest names"
            findings.append(found("audit.digest", subject, words, position))
        if name.endswith(".parquet"):
            kept[name] = data
    for name in sorted(present.keys() - listed.keys() - {MANIFEST, FIX}):
        subject = f"{path.name}/{name}"
        findings.append(found("audit.digest", subject, f"{subject} is not in the manifest", position))
    return kept, findings


def listed_files(manifest: Mapping[str, Any]) -> dict[str, tuple[str | None, int | None]]:
    """File name → (SHA-256, bytes); entries of another shape cannot be compared and count as changed."""
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        return {}
    out: dict[str, tuple[str | None, int | None]] = {}
    for name, entry in listed.items():
        known = isinstance(entry, dict) and entry.keys() == {"sha256", "bytes"}
        out[name] = (entry["sha256"], entry["bytes"]) if known else (None, None)
    return out


def found(rule_id: str, subject: str, detail: str, block: int | None = None) -> Finding:
    """A finding with the severity of the rulebook."""
    return Finding(rule=rule_id, severity=rule(rule_id).severity, subject=subject, detail=detail, block=block)


def read_json(path: Path) -> tuple[dict[str, Any], bytes, str | None]:
    """(object, bytes, what is wrong); never raises."""
    try:
        data = durable.read_file(str(path))
        value = orjson.loads(data)
    except OSError as error:
        return {}, b"", error.strerror or str(error)
    except orjson.JSONDecodeError as error:
        return {}, b"", f"no JSON: {error}"
    return (value, data, None) if isinstance(value, dict) else ({}, b"", "no JSON object")
