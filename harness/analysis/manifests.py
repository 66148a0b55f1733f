"""The fields of manifest.json and of the block log that analysis reads, in one place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.model.stored import StoredRun

_VOLATILE = frozenset({"pid", "start_ticks", "created", "executable", "argv", "env", "port", "url"})
"""Fields of a process fingerprint that differ from start to start, or from checkout to checkout, of the same set-up."""


def labels(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """arm, plays and pair as the manifest says them."""
    return {name: manifest[name] for name in ("arm", "plays", "pair") if name in manifest}


def file_digests(manifest: Mapping[str, Any]) -> dict[str, str]:
    """File name relative to the block's folder → SHA-256."""
    files = copy(manifest.get("files") or {})
    if isinstance(files, dict) and all(type(fact) is str for fact in files.values()):
        return files
    return {name: fact["sha256"] if isinstance(fact, Mapping) else str(fact) for name, fact in files.items()}


def capacity(manifest: Mapping[str, Any]) -> Any:
    """Cache capacity of every replica, as recorded; None where the manifest has none."""
    return manifest.get("capacity") or None


def declaration_digest(manifest: Mapping[str, Any]) -> str | None:
    """SHA-256 of the declaration the block was run with."""
    return manifest.get("declaration_digest")


def findings(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the run found in this block while measuring, as plain values of `Finding`."""
    return [noted for noted in manifest.get("findings") or () if "rule" in noted and "severity" in noted]


def log(header: Mapping[str, Any]) -> dict[int, str] | None:
    """Position → SHA-256 of the manifest that counts after the whole log (blocks.jsonl); None where no log was read."""
    lines = header.get("block_log")
    if lines is None:
        return None
    latest: dict[int, str] = {}
    for line in lines:
        if line["event"] == "committed":
            latest[int(line["block"])] = str(line["manifest_sha256"])
        elif line["event"] == "superseded":
            latest.pop(int(line["block"]), None)
    return latest


def fingerprint_digest(run: StoredRun, arm: str) -> str | None:
    """What an A/A noise floor belongs to: engine, host, requests, workloads, and the arm's own processes.

    The order, the other arms and everything that changes from start to start (pids, ports) are left out, so that an
    A/A screening of an arm and an ON/OFF screening that uses the same arm agree. None where no block ran the arm.
    """
    block = next((block for block in run.blocks if block.arm == arm), None)
    if block is None:
        return None
    declared = run.screening
    facts = {
        "engine": [declared.engine.kind, declared.engine.model, declared.engine.block_size, declared.engine.chunk_size],
        "host": run.header.get("host"),
        "request": repr(declared.request),
        "workloads": repr(declared.workloads),
        "processes": _lasting(block.manifest.get("fingerprints")),
        "capacity": capacity(block.manifest),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _lasting(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get("fingerprint_digest"):
            return value["fingerprint_digest"]
        return {str(k): _lasting(v) for k, v in value.items() if k not in _VOLATILE}
    return [_lasting(item) for item in value] if isinstance(value, list | tuple) else value
