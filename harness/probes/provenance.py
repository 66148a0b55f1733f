"""Layer 7, provenance: SHA-256 of every file of a model directory against a manifest, read once, streamed.

`kvabba manifest DIR` writes the manifest; a screening stores the verdict in its fingerprint. A file whose size or
modification time changes while it is read is a failure: what was hashed is not what the engine will load.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from harness.probes.results import Check, LayerResult, from_checks, not_validated

MANIFEST_NAME = "kvabba-manifest.json"
READ_BYTES = 1 << 20
"""Small enough to stay in the processor's cache between read and hash, large enough for hashlib to free the lock."""

Progress = Callable[[int, int], None]
"""(bytes hashed so far, bytes in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """One file: path relative to the directory, size in bytes, SHA-256 in hex, and whether it stood still."""

    path: str
    size: int
    sha256: str
    stable: bool


def files_of(folder: Path) -> list[Path]:
    """Every regular file below `folder`, links followed, the manifest itself left out, in path order."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST_NAME)


def digest_file(path: Path, folder: Path, on_bytes: Callable[[int], None] = lambda _n: None) -> FileDigest:
    """Stream one file through SHA-256. hashlib lets other threads run while it works on large buffers."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(READ_BYTES))
    with path.open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            on_bytes(count)
    after = path.stat()
    stable = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return FileDigest(
        path=path.relative_to(folder).as_posix(), size=after.st_size, sha256=digest.hexdigest(), stable=stable
    )


def digest_folder(
    folder: Path, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[list[FileDigest], float]:
    """Digests of all files, largest first over `workers` threads (default: the cores), and the seconds it took."""
    paths = files_of(folder)
    total, done = sum(p.stat().st_size for p in paths), [0]

    def count(nbytes: int) -> None:
        done[0] += nbytes
        if progress is not None:
            progress(done[0], total)

    started = time.monotonic()
    by_size = sorted(paths, key=lambda p: -p.stat().st_size)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        found = list(pool.map(lambda p: digest_file(p, folder, count), by_size))
    return sorted(found, key=lambda f: f.path), time.monotonic() - started


def write_manifest(folder: Path, target: Path | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
    """Write `kvabba-manifest.json` into the folder (or to `target`) and return it; raises OSError where it cannot."""
    digests, seconds = digest_folder(folder, progress=progress)
    unstable = [f.path for f in digests if not f.stable]
    if unstable:
        raise OSError(f"files changed while they were read: {', '.join(unstable)}")
    manifest = {
        "schema": 1,
        "files": {f.path: {"size": f.size, "sha256": f.sha256} for f in digests},
        "bytes": sum(f.size for f in digests),
    }
    (target or folder / MANIFEST_NAME).write_bytes(orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
    return {**manifest, "seconds": seconds}


def compare(digests: list[FileDigest], manifest: Mapping[str, Any]) -> list[Check]:
    """One check a file, plus one for files the manifest does not know and one for files that are gone."""
    wanted: Mapping[str, Mapping[str, Any]] = manifest["files"]
    found = {f.path: f for f in digests}
    checks = []
    for path, want in sorted(wanted.items()):
        have = found.get(path)
        words = (
            "missing" if have is None
            else "changed while it was read" if not have.stable
            else f"size {have.size}, manifest {want['size']}" if have.size != want["size"]
            else "SHA-256 differs" if have.sha256 != want["sha256"]
            else ""
        )  # fmt: skip
        checks.append(Check(name=path, trials=1, failures=int(bool(words)), detail=words or "equal"))
    extra = sorted(set(found) - set(wanted))
    checks.append(
        Check(name="no file beside the manifest", trials=1, failures=int(bool(extra)), detail=", ".join(extra))
    )
    return checks


def run(folder: Path | None, *, manifest_path: Path | None = None, progress: Progress | None = None) -> LayerResult:
    """Layer 7 on a model directory; not validated where the engine has no local files or there is no manifest."""
    if folder is None:
        return not_validated("provenance", "the engine declares no local model directory")
    path = manifest_path or folder / MANIFEST_NAME
    if not folder.is_dir():
        return not_validated("provenance", f"no directory {folder.name}")
    if not path.exists():
        return not_validated("provenance", f"no {MANIFEST_NAME} (write one with `kvabba manifest {folder.name}`)")
    digests, seconds = digest_folder(folder, progress=progress)
    nbytes = sum(f.size for f in digests)
    facts = {
        "files": [asdict(f) for f in digests],
        "bytes": nbytes,
        "manifest_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes_per_second": nbytes / seconds if seconds else None,
    }
    return from_checks("provenance", compare(digests, orjson.loads(path.read_bytes())), facts=facts, seconds=seconds)
