"""`python tests/bench/analysis_scale.py [blocks]`: audit and summary of 10,000 blocks (1.92 million rows), time and
memory.

Target (the reference printed beside the figures): under 60 s and 2 GiB on two cores. Blocks are Parquet bytes that
are decoded when the analysis asks for them, and payloads.json is parsed when asked for, as a reader of large folders
does; both are inside the figures. Counter tables are not loaded, as for any large folder. Wall time suffers from
neighbours on a shared machine, so CPU time stands beside it. What it takes to make the input is printed apart.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))

import synthetic

from harness.analysis import examine
from harness.analysis.audit import COLUMNS as AUDIT_COLUMNS
from harness.analysis.metrics import COLUMNS as METRIC_COLUMNS
from harness.analysis.outputs import COLUMNS as OUTPUT_COLUMNS
from harness.model.planned import PlannedBlock
from harness.model.stored import StoredRun

TARGET_S, TARGET_GIB = 60.0, 2.0
IDENTITY = ("block", "arm", "plays", "pair", "key")


class ParsedWhenAsked(Mapping[str, Mapping[str, Any]]):
    """payloads.json of a block as bytes, made from a template pair by pair."""

    def __init__(self, template: bytes, pair: int) -> None:
        self._template, self._pair = template, pair

    @cached_property
    def _values(self) -> dict[str, Any]:
        return orjson.loads(self._template.replace(b'"p1/', b'"p%d/' % self._pair))

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class DecodeAhead:
    """Decodes the Parquet bytes of blocks in one thread, a few blocks ahead of who asks; Arrow releases the GIL."""

    AHEAD = 32

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self._waiting: dict[int, Future[pa.Table]] = {}
        self._pool = ThreadPoolExecutor(max_workers=1)

    def __call__(self, index: int) -> pa.Table:
        for ahead in range(index, min(index + self.AHEAD, len(self.stored))):
            if ahead not in self._waiting:
                self._waiting[ahead] = self._pool.submit(self._decode, ahead)
        return self._waiting.pop(index).result()

    def _decode(self, index: int) -> pa.Table:
        return pq.ParquetFile(pa.BufferReader(self.stored[index])).read(use_threads=False)


class ReadWhenAsked:
    """A stored block whose rows are decoded on access and not kept: the attributes of `StoredBlock`."""

    counters = chunks = None
    manifest_sha256 = ""

    def __init__(
        self,
        planned: PlannedBlock,
        manifest: Mapping[str, Any],
        rows: Callable[[int], pa.Table],
        warmups: pa.Table,
        payloads: bytes,
    ) -> None:
        self.position, self.arm, self.plays, self.pair = planned.position, planned.arm, planned.plays, planned.pair
        self.path = f"blocks/{planned.position:02d}-{planned.arm}"
        self.manifest, self.warmups, self._rows, self._payloads = manifest, warmups, rows, payloads

    @property
    def payloads(self) -> Mapping[str, Mapping[str, Any]]:
        return ParsedWhenAsked(self._payloads, self.pair)

    @property
    def requests(self) -> pa.Table:
        return self._rows(self.position - 1)


def peak_gib() -> float:
    """Largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def make(blocks: int) -> StoredRun:
    """A run of that many blocks of the paper's plan."""
    base = synthetic.make_run(synthetic.paper(), synthetic.Noise(block_sd=0.01, drift=0.0005))
    declared = synthetic.paper(("off", "on", "on", "off") * (blocks // 4))
    plan = synthetic.plan(declared)
    columns = list(dict.fromkeys((*IDENTITY, *AUDIT_COLUMNS, *METRIC_COLUMNS, *OUTPUT_COLUMNS)))
    template = orjson.dumps(dict(base.blocks[0].payloads))
    shas = {key: row["sha256"] for key, row in base.blocks[0].payloads.items()}
    out, reader = [], DecodeAhead()
    for planned in plan.blocks:
        model = base.blocks[(planned.position - 1) % 4]
        reader.stored.append(as_parquet(relabel(model.requests.select(columns), planned.position, planned.pair, shas)))
        manifest = dict(model.manifest) | {
            "pair": planned.pair,
            "position": planned.position,
            "declaration_digest": declared.digest,
        }
        manifest.pop("files")
        out.append(ReadWhenAsked(planned, manifest, reader, model.warmups.slice(0, 0).select(["key"]), template))
    slim = replace(plan, blocks=tuple(replace(b, warmups=()) for b in plan.blocks), payloads=())
    return replace(base, screening=declared, plan=slim, blocks=tuple(out), header={"host": {}})


def relabel(table: pa.Table, position: int, pair: int, shas: Mapping[str, str]) -> pa.Table:
    """The same rows as those of another block."""
    rows = table.num_rows
    ids = [f"p{pair}/{pid.split('/', 1)[1]}" for pid in table["payload_id"].to_pylist()]
    for name, values in (
        ("block", pa.array(np.full(rows, position))),
        ("pair", pa.array(np.full(rows, pair))),
        ("payload_id", pa.array(ids)),
        ("payload_sha256", pa.array([shas["p1/" + pid.split("/", 1)[1]] for pid in ids])),
    ):
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def as_parquet(table: pa.Table) -> bytes:
    """As the store writes it: zstd, one row group."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def main() -> None:
    """Make, audit, summarise, print."""
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    began = time.perf_counter()
    run = make(blocks)
    made, resident = time.perf_counter() - began, peak_gib()
    began, cpu = time.perf_counter(), time.process_time()
    verdict, result = examine(run)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    rows = f"{verdict.rows:,} rows = {verdict.paired:,} paired + {verdict.excluded:,} excluded"
    lines = (
        f"input: {blocks:,} blocks, made in {made:.1f} s, {resident:.2f} GiB resident",
        f"verdict {verdict.status}: {rows}; {len(result.table.effects)} cells",
        *(f"   {found.rule} {found.subject} {found.detail}" for found in verdict.findings[:3]),
        f"audit and summary: {wall:.1f} s wall, {used:.1f} s CPU (reference: {TARGET_S:.0f} s)",
        f"peak memory {peak_gib():.2f} GiB, input included (reference: {TARGET_GIB:.0f} GiB)",
    )
    print("\n".join(lines))  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
