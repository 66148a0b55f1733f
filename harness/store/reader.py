"""Read a results folder back and verify digests, schema and log. What is wrong becomes findings, not exceptions.

Strategy: every file is compared with its manifest first, by several processes where blocks are many, while the plan is
rebuilt. What stays in memory of a block is small: its manifest without the list of files, and the shapes of its tables.
Rows, payloads and lists of files are read when somebody asks for them (`tables`, `payloads`, `manifests`), so that a
folder of ten thousand blocks is audited block after block in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.model.errors import HarnessError, SchemaError
from harness.model.planned import Plan
from harness.model.screening import Screening
from harness.model.stored import ExcludedBlock, StoredBlock, StoredRun
from harness.store import durable
from harness.store.folder import DECLARATION, HEADER, block_folders, current, read_log
from harness.store.footers import Shape
from harness.store.manifests import FileDigests, Shared
from harness.store.payloads import LatestPayloads, StoredPayloads
from harness.store.tables import StoredTable, TableShelf
from harness.store.verifying import FIX, Checked, Folder, checking, compare, found, read_json, workers
from harness.store.writer import FILES, MANIFEST, REASON

if TYPE_CHECKING:
    import pyarrow as pa

    from harness.model.findings import Finding

Rebuild = Callable[[bytes], tuple[Screening, Plan]]
"""Canonical declaration → the screening and its plan: handed in, so that the store needs neither config nor plan."""


def read_run(path: Path, rebuild: Rebuild, *, chunks: bool = True) -> StoredRun:
    """Everything a results folder holds. `chunks=False` leaves the chunk and counter tables out (None).

    Raises SchemaError only where there is no declaration to read the folder by.
    """
    declaration = _declaration(path)
    folders = block_folders(path / "blocks")
    stems = tuple(FILES) if chunks else ("requests", "warmups")
    pool = workers(len(folders))
    checked = checking(folders, stems=stems, pool=pool)
    try:
        screening, plan = _rebuild(path, declaration, rebuild)
    except BaseException:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)  # else the interpreter's end waits for every block
        raise
    header, findings = _header(path, screening)
    blocks = _blocks(folders, list(checked), stems, findings, pool)
    excluded, superseded = _archived(path, "excluded", findings), _archived(path, "superseded", findings)
    committed = [asdict(entry) for entry in current(read_log(path))]
    log = [{"event": "committed", "block": entry["position"], **entry} for entry in committed]
    return StoredRun(
        path=str(path),
        run=path.name,
        screening=screening,
        plan=plan,
        header={**header, "blocks": committed, "block_log": log},
        blocks=blocks,
        excluded=excluded,
        superseded=superseded,
        file_findings=tuple(findings),
    )


def _declaration(path: Path) -> bytes:
    try:
        return (path / DECLARATION).read_bytes()
    except FileNotFoundError as error:
        hint = "Give the folder of one run, such as results/quick/20261130-174611."
        raise SchemaError(f"{path} is not a results folder: it has no {DECLARATION}", hint=hint) from error


def _rebuild(path: Path, declaration: bytes, rebuild: Rebuild) -> tuple[Screening, Plan]:
    try:
        return rebuild(declaration)
    except HarnessError as error:
        raise SchemaError(f"{path / DECLARATION}: {error.message}", hint="Restore the folder.") from error


def _header(path: Path, screening: Screening) -> tuple[dict[str, Any], list[Finding]]:
    header, _, fault = read_json(path / HEADER)
    if fault:
        return {}, [found("audit.file_missing", HEADER, f"{HEADER}: {fault}")]
    if header.get("declaration_digest") not in (None, screening.digest):
        words = "declaration.json is not the declaration that run.json names"
        return header, [found("audit.settings", DECLARATION, words)]
    return header, []


def _blocks(
    folders: Sequence[Folder],
    checked: Sequence[Checked],
    stems: Sequence[str],
    findings: list[Finding],
    pool: Executor | None,
) -> tuple[StoredBlock, ...]:
    """The committed blocks; one without a manifest is left out, and was found."""
    for one in checked:
        findings.extend(one.findings)
    whole = [(folder, one) for folder, one in zip(folders, checked, strict=True) if one.manifest is not None]
    paths = [path for (_, _, path), _ in whole]
    shelves = {stem: TableShelf(stem, FILES[stem], paths, pool) for stem in stems}
    shared, latest = Shared(), LatestPayloads()
    return tuple(
        _block(folder, one, index, shelves=shelves, shared=shared, latest=latest)
        for index, (folder, one) in enumerate(whole)
    )


def _block(
    folder: Folder,
    checked: Checked,
    index: int,
    *,
    shelves: Mapping[str, TableShelf],
    shared: Shared,
    latest: LatestPayloads,
) -> StoredBlock:
    position, arm, path = folder
    manifest = shared.parsed(checked.manifest or b"{}")
    tables = {stem: _table(shelf, index, checked.shapes[stem]) for stem, shelf in shelves.items()}
    return StoredBlock(
        position=position,
        arm=arm,
        plays=str(manifest.get("plays", arm)),
        pair=pair if isinstance(pair := manifest.get("pair"), int) else 0,
        path=str(path),
        manifest={**manifest, "files": FileDigests(path)},
        manifest_sha256=checked.manifest_sha256,
        requests=tables["requests"],
        warmups=tables["warmups"],
        chunks=tables.get("chunks"),
        counters=tables.get("counters"),
        payloads=StoredPayloads(path / "payloads.json", latest),
    )


def _table(shelf: TableShelf, index: int, shape: Shape) -> pa.Table:
    # Whoever reads a block sees a table; that it is read when asked for is the store's own affair.
    return cast("pa.Table", StoredTable(shelf, index, rows=shape.rows, exact=shape.exact))


def _archived(path: Path, kind: str, findings: list[Finding]) -> tuple[ExcludedBlock, ...]:
    out = []
    gone = {entry["manifest_sha256"]: entry for entry in read_log(path) if entry["event"] == kind}
    gone.pop(None, None)
    for position, tail, folder in block_folders(path / kind):
        reason, _, fault = read_json(folder / REASON)
        manifest, raw, no_manifest = read_json(folder / MANIFEST)
        if fault:
            findings.append(found("audit.file_missing", f"{kind}/{folder.name}", f"{REASON}: {fault}", position))
        if not no_manifest:
            gone.pop(durable.digest(raw), None)
        if kind == "excluded" and not no_manifest:
            findings.extend(compare(folder, manifest, position)[1])
        out.append(_archive_entry(position, tail, folder, manifest, reason))
    for entry in gone.values():
        position, arm = entry["position"], entry["arm"]
        words = f"{kind} block {position} ({arm}) was recorded, its folder is gone or changed"
        findings.append(found("audit.file_missing", f"{kind}/{position:02d}-{arm}", words, position))
    return tuple(out)


def _archive_entry(
    position: int, tail: str, folder: Path, manifest: Mapping[str, Any], reason: Mapping[str, Any]
) -> ExcludedBlock:
    fix = folder / FIX
    noted = {"fix": fix.read_text(encoding="utf-8").strip()} if fix.is_file() else {}
    arm = str(manifest.get("arm") or reason.get("arm") or tail.rpartition("-")[0])
    return ExcludedBlock(position=position, arm=arm, path=str(folder), reason={**reason, **noted})
