"""Makes large results folders for `folder_scale`: made-up rows of the paper's plan, written by the project's writer.

Rows, payloads and counters come from the analysis tests' synthetic screenings, once for each arm of the first two pairs
(the replica of a generation alternates between pairs); every further block is the same with its own position, pair,
body names and digests. Everything passes the audit, so that the benchmark times the way through, not the findings.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))

import synthetic
import synthetic_plan
import synthetic_rows

from harness import config
from harness.model.counting import Counter
from harness.model.planned import PlannedBlock, PlannedRequest
from harness.model.rows import COUNTERS
from harness.model.screening import Screening
from harness.plan import schedule
from harness.store import BlockWriter, RunFolder
from harness.store.schemas import to_table

BODY_BYTES = 1_024
PALINDROME = ("off", "on", "on", "off")
_OF_ROW = {
    Counter.LOCAL_QUERIES: "local_queries",
    Counter.LOCAL_HITS: "local_hits",
    Counter.EXTERNAL_QUERIES: "external_queries",
    Counter.EXTERNAL_HITS: "external_hits",
    Counter.PROMPT_TOKENS: "prompt_tokens_counted",
    Counter.COMPUTED_TOKENS: "computed_tokens",
    Counter.GENERATED_TOKENS: "completion_tokens",
    Counter.PREEMPTIONS: "preemptions",
}
_OF_POOL = {
    Counter.POOL_HIT_TOKENS: "pool_hit_tokens",
    Counter.POOL_LOADED_CHUNKS: "pool_loaded_chunks",
    Counter.POOL_EVICTED_CHUNKS: "pool_evicted_chunks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the blocks of one arm and parity of pair have in common."""

    tables: Mapping[str, pa.Table]
    payloads: Mapping[str, dict[str, Any]]


def make(results: Path, run: str, blocks: int, jobs: int) -> Path:
    """A folder of that many blocks (a multiple of 4); `jobs` processes share the work."""
    declared = declaration(blocks)
    header = {
        "declaration_digest": declared.digest,
        "status": "finished",
        "host": {"cpu": "made up", "cores": 2},
        "options": {},
        "unvalidated": True,
    }
    # The first four blocks are planned as those of any length; planning all of them here would only cost time.
    four = schedule(declaration(len(PALINDROME)))
    models = [model(declared, block) for block in four.blocks]
    with RunFolder.create(results, "scale", run, header=header, declaration=config.to_json(declared)) as folder:
        children = [_forked(folder, declared, models, range(part + 1, blocks + 1, jobs)) for part in range(jobs)]
        failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
        if failed:
            raise RuntimeError(f"{len(failed)} of {jobs} writing processes failed")
    return folder.path


def declaration(blocks: int) -> Screening:
    """The paper's declaration with that many blocks, and the block sizes the made-up counters follow."""
    text = (Path(__file__).parents[2] / "blocks" / "paper.toml").read_text(encoding="utf-8")
    order = ", ".join(f'"{arm}"' for arm in PALINDROME * (blocks // len(PALINDROME)))
    for old, new in (
        ('order = ["off", "on", "on", "off"]', f"order = [{order}]"),
        ("block_size = 1568", f"block_size = {synthetic_plan.BLOCK}"),
        ("chunk_size = 1568", f"chunk_size = {synthetic_plan.CHUNK}"),
        ("num_gpu_blocks = 1262", "num_gpu_blocks = 123676"),
        ("capacity_chunks = 4096", "capacity_chunks = 40960"),
    ):
        if old not in text:
            raise ValueError(f"blocks/paper.toml no longer holds: {old}")
        text = text.replace(old, new)
    return config.loads(text.encode(), source="the paper's plan, repeated")


def model(declared: Screening, block: PlannedBlock) -> Model:
    """Rows and payloads of one of the first four blocks."""
    reach = declared.arm(block.arm).reach
    quiet = synthetic.Noise(block_sd=0.01, drift=0.0005)
    tables = []
    for requests in (block.requests, block.warmups):
        columns = synthetic_rows.template(requests, declared, reach)
        tables.append((columns, synthetic_rows.rows(requests, block, declared, quiet, columns).to_pylist()))
    (columns, rows), (_, warmups) = tables
    windows = synthetic_rows.counters(block.requests, block, columns, reach).to_pylist()
    everything: dict[str, PlannedRequest] = {r.payload_id: r for r in (*block.warmups, *block.requests)}
    payloads = {pid: synthetic.payload_fields(synthetic.payload(r, everything)) for pid, r in everything.items()}
    return Model(
        tables={
            "requests": to_table("requests", rows),
            "warmups": to_table("requests", warmups),
            "counters": to_table("counters", [*_counters(rows, pooled=reach != "none"), *windows]),
            "chunks": to_table("chunks", [_chunk(row, event) for row in rows for event in range(2)]),
        },
        payloads=payloads,
    )


def _counters(rows: Sequence[Mapping[str, Any]], *, pooled: bool) -> list[dict[str, Any]]:
    out = []
    for row in rows:
        if row["window"] is not None:
            continue
        for target in "AB":
            here = target == row["replica"]
            out += [_counted(row, target, counter, row[name] if here else 0) for counter, name in _OF_ROW.items()]
        if pooled:
            out += [_counted(row, "pool", counter, row[name]) for counter, name in _OF_POOL.items()]
    return out


def _counted(row: Mapping[str, Any], target: str, counter: Counter, delta: int) -> dict[str, Any]:
    values = {
        "block": row["block"],
        "pair": row["pair"],
        "key": row["key"],
        "target": target,
        "counter": str(counter),
        "before": 1_000.0,
        "after": 1_000.0 + delta,
        "delta": delta,
        "status": "increase",
        "before_ns": row["start_ns"],
        "after_ns": row["recorded_ns"],
    }
    return {column.name: values.get(column.name) for column in COUNTERS}


def _chunk(row: Mapping[str, Any], event: int) -> dict[str, Any]:
    at = row["last_content_ns" if event else "first_content_ns"]
    return {
        "block": row["block"],
        "pair": row["pair"],
        "key": row["key"],
        "event": event,
        "read": event,
        "at_ns": at,
        "user_ns": at + 30_000,
        "kind": "content",
        "chars": 4,
        "completion_tokens": None,
        "finish_reason": None,
    }


def _forked(folder: RunFolder, declared: Screening, models: Sequence[Model], positions: range) -> int:
    """A process that writes those blocks; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for position in positions:
            write(folder, declared, models[(position - 1) % len(PALINDROME)], position)
        os._exit(0)
    finally:
        # Reached with an error on its way: this process must not go on as if it were its parent.
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        os._exit(1)


def write(folder: RunFolder, declared: Screening, base: Model, position: int) -> None:
    """One block as a run writes it: bodies, payloads.json, rows, logs, commit."""
    pair, arm = (position - 1) // 2 + 1, PALINDROME[(position - 1) % len(PALINDROME)]
    names = {pid: f"p{pair}/{pid.split('/', 1)[1]}" for pid in base.payloads}
    bodies = {pid: f"{pid} ".encode().ljust(BODY_BYTES, b".") for pid in names.values()}
    digests = {pid: hashlib.sha256(body).hexdigest() for pid, body in bodies.items()}
    with folder.writer(position, arm) as writer:
        payloads = _payloads(base, names, digests)
        for pid, fields in payloads.items():
            kind = "warmup-fixtures" if pid.split("/")[1] == "warmup" else "fixtures"
            (writer.path / kind / fields["path"]).write_bytes(bodies[pid])
        writer.put("payloads.json", orjson.dumps(payloads, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
        _add(writer, base, {"block": position, "pair": pair, "run": folder.run}, names, digests)
        for name in ("A.log", "B.log"):
            writer.put(f"logs/{name}", f"{name} of block {position}\n".encode())
        for name in ("start-A", "start-B", "end-A", "end-B"):
            writer.put(f"metrics/{name}", f"# {name} of block {position}\n".encode())
        folder.commit(writer, position, arm, _manifest(declared, position, pair, arm, folder.run))


def _payloads(base: Model, names: Mapping[str, str], digests: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    out = {}
    for old, fields in base.payloads.items():
        pid = names[old]
        lcp = {names[other]: tokens for other, tokens in fields["lcp"].items()}
        out[pid] = fields | {
            "payload_id": pid,
            "sha256": digests[pid],
            "nbytes": BODY_BYTES,
            "path": pid.replace("/", "__") + ".json",
            "lcp": lcp,
            "lcp_with_answer": lcp,
        }
    return out


def _add(
    writer: BlockWriter, base: Model, place: Mapping[str, Any], names: Mapping[str, str], digests: Mapping[str, str]
) -> None:
    """Rows as tables: making 3,000 rows a block of Python values would take longer than everything that is measured."""
    for stem, model_table in base.tables.items():
        table, values = model_table, dict(place)
        if stem in ("requests", "warmups"):
            ids = [names[pid] for pid in table["payload_id"].to_pylist()]
            values |= {"payload_id": ids, "payload_sha256": [digests[pid] for pid in ids], "payload_bytes": BODY_BYTES}
        for name, value in values.items():
            column = table.schema.get_field_index(name)
            if column >= 0:
                field = table.schema.field(column)
                filled = value if isinstance(value, list) else [value] * table.num_rows
                table = table.set_column(column, field, pa.array(filled, field.type))
        writer._tables[stem].append(table)  # `add` takes rows; what it makes of them is just this


def _manifest(declared: Screening, position: int, pair: int, arm: str, run: str) -> dict[str, Any]:
    """As `harness.run.block` writes it, with fingerprints that differ from start to start."""
    processes = {
        name: {"version": "made up", "model": declared.engine.model, "argv": ["engine", "--arm", arm] * 8, "pid": pid}
        for name, pid in (("A", 1_000 + 2 * position), ("B", 1_001 + 2 * position))
    }
    return {
        "kind": "block",
        "status": "committed",
        "screening": declared.name,
        "run": run,
        "declaration_digest": declared.digest,
        "block": position,
        "pair": pair,
        "arm": arm,
        "plays": arm,
        "started_utc": "2026-11-30T12:00:00Z",
        "ended_utc": "2026-11-30T12:10:00Z",
        "urls": {"A": "http://127.0.0.1:1", "B": "http://127.0.0.1:2"},
        "pools": ["pool"] if arm == "on" else [],
        "fingerprints": processes,
        "capacity": {name: {"blocks": 1_262, "block_size": declared.engine.block_size} for name in "AB"},
        "canary": [{"replica": name, "hits": 0} for name in "AB"],
        "host": {"cpu": "made up", "cores": 2, "memory": 2**34},
        "contention": {"steal_ns": position * 1_000, "load": 0.5},
        "findings": [],
        "planned": {"requests": 192, "warmups": 6},
        "time": {"block_ns": 600_000_000_000 + position, "overhead_ns": 1_000_000_000, "barrier_ns": 1_000},
    }
