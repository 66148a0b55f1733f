"""Made-up but consistent screenings: a plan, payloads and stored rows that pass the audit, and ways to spoil them.

`make_run(...)` gives a `StoredRun` as the store would read it back. Nothing here imports `harness.plan` or
`harness.store`: analysis is tested against the vocabulary in `harness.model`, not against its neighbours. Times start
from the published medians (experiment.md §5), so that a report has something to look at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from synthetic_plan import BLOCK, paper, payload, payload_fields, plan, screening
from synthetic_rows import Noise, counters, rows, table, template

from harness.model.planned import PlannedBlock
from harness.model.rows import REQUESTS
from harness.model.screening import Screening
from harness.model.stored import StoredBlock, StoredRun

__all__ = [
    "Noise",
    "block_manifest",
    "digest",
    "edit",
    "make_run",
    "paper",
    "payload",
    "payload_fields",
    "plan",
    "screening",
    "with_block",
    "with_rows",
]


def block_manifest(block: PlannedBlock, declared: Screening, payloads: Mapping[str, Any]) -> dict[str, Any]:
    """manifest.json of a made-up block."""
    files = {
        f"{'warmup-fixtures' if fields['payload_id'].split('/')[1] == 'warmup' else 'fixtures'}/{fields['path']}": {
            "sha256": fields["sha256"],
            "bytes": fields["nbytes"],
        }
        for fields in payloads.values()
    }
    return {
        "position": block.position,
        "arm": block.arm,
        "plays": block.plays,
        "pair": block.pair,
        "declaration_digest": declared.digest,
        "capacity": {r.name: {"num_gpu_blocks": 1_262, "block_size": BLOCK} for r in declared.engine.replicas},
        "fingerprints": {
            r.name: {"version": "sim", "model": "m", "args": [block.arm], "pid": 100 + block.position}
            for r in declared.engine.replicas
        },
        "counts": {"requests": len(block.requests), "warmups": len(block.warmups)},
        "files": files,
    }


def make_run(
    declared: Screening | None = None, noise: Noise | None = None, *, only: Sequence[int] | None = None
) -> StoredRun:
    """A whole stored screening that passes the audit; `only` keeps those block positions."""
    declared = declared or screening()
    noise = noise or Noise()
    planned = plan(declared)
    templates: dict[tuple[int, str, bool], dict[str, Any]] = {}
    blocks = []
    for block in planned.blocks:
        if only is not None and block.position not in only:
            continue
        reach = declared.arm(block.arm).reach
        tables = {}
        for warm, requests in ((True, block.warmups), (False, block.requests)):
            ident = (block.pair, reach, warm)
            if ident not in templates:
                templates[ident] = template(requests, declared, reach)
            tables[warm] = rows(requests, block, declared, noise, templates[ident])
        everything = {r.payload_id: r for r in (*block.warmups, *block.requests)}
        payloads = {pid: payload_fields(payload(r, everything)) for pid, r in everything.items()}
        manifest = block_manifest(block, declared, payloads)
        blocks.append(
            StoredBlock(
                position=block.position,
                arm=block.arm,
                plays=block.plays,
                pair=block.pair,
                path=f"blocks/{block.position:02d}-{block.arm}",
                manifest=manifest,
                manifest_sha256=digest(manifest),
                requests=tables[False],
                warmups=tables[True],
                chunks=None,
                counters=counters(block.requests, block, templates[(block.pair, reach, False)], reach),
                payloads=payloads,
            )
        )
    log = [
        {"event": "committed", "block": b.position, "arm": b.arm, "manifest_sha256": b.manifest_sha256} for b in blocks
    ]
    header = {
        "run": "20261130-000000",
        "host": {"cpu": "made up"},
        "block_log": log,
        "predecessor": None,
        "options": {},
    }
    return StoredRun(
        path="results/synthetic",
        run="20261130-000000",
        screening=declared,
        plan=planned,
        header=header,
        blocks=tuple(blocks),
        excluded=(),
        superseded=(),
    )


def digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the manifest's canonical JSON."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


# --- ways to spoil a run ------------------------------------------------------------------------------------


def with_block(run: StoredRun, position: int, change: Callable[[StoredBlock], StoredBlock]) -> StoredRun:
    """The same run with one block changed."""
    return replace(run, blocks=tuple(change(b) if b.position == position else b for b in run.blocks))


def with_rows(
    run: StoredRun, position: int, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> StoredRun:
    """The same run with the rows of one block rewritten."""

    def rewrite(block: StoredBlock) -> StoredBlock:
        rows = change(block.requests.to_pylist())
        return replace(
            block, requests=table({c.name: [r[c.name] for r in rows] for c in REQUESTS}, REQUESTS, len(rows))
        )

    return with_block(run, position, rewrite)


def edit(run: StoredRun, position: int, key: str, **changes: Any) -> StoredRun:
    """The same run with some columns of one row changed."""

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert any(r["key"] == key for r in rows), key
        return [r | changes if r["key"] == key else r for r in rows]

    return with_rows(run, position, change)
