"""`python tests/bench/analysis_engines.py [blocks]`: the audit's kernel in numpy, pandas, pyarrow and DuckDB.

The kernel: join stored rows to the plan by (block, key), count missing and doubled cells, compare SHA-256 and replica
with the partner arm, apply two counter rules; all four must give the same answer. CPU and wall time of the best of
three; docs/adr/0010 holds the figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))

import synthetic

COLUMNS = ["block", "pair", "plays", "key", "replica", "payload_sha256", "prompt_tokens", "local_queries", "local_hits",
           "expected_local_max"]  # fmt: skip
Answer = tuple[int, int, int, int]


def make(blocks: int) -> tuple[list[pa.Table], list[str]]:
    """Tables per block and the planned keys."""
    base = synthetic.make_run(synthetic.paper())
    out = []
    for position in range(1, blocks + 1):
        table = base.blocks[(position - 1) % 4].requests.select(COLUMNS)
        for name, value in (("block", position), ("pair", (position + 1) // 2)):
            table = table.set_column(table.column_names.index(name), name, pa.array(np.full(table.num_rows, value)))
        if position == 3:  # one digest and one counter are off: every engine has to see both
            table = spoil(table)
        out.append(table.combine_chunks())
    return out, [request.key for request in base.plan.blocks[0].requests]


def spoil(table: pa.Table) -> pa.Table:
    """The same rows with another digest in the first and another counter in the second."""
    rows = table.to_pylist()
    rows[0]["payload_sha256"], rows[1]["local_queries"] = "0" * 64, 1
    return pa.Table.from_pylist(rows, schema=table.schema)


def with_numpy(tables: list[pa.Table], keys: list[str]) -> Answer:
    """A dense grid of blocks × keys."""
    table = pa.concat_tables(tables)
    column = {name: table[name].combine_chunks() for name in COLUMNS}
    code = pc.index_in(column["key"], value_set=pa.array(keys)).to_numpy(zero_copy_only=False)
    block = column["block"].to_numpy() - 1
    cell = (block * len(keys) + code).astype(np.int64)
    count = np.bincount(cell, minlength=len(tables) * len(keys))
    row = np.zeros(len(count), dtype=np.int64)
    row[cell] = np.arange(len(cell))
    row = row.reshape(-1, 2, len(keys))
    sha = column["payload_sha256"].dictionary_encode().indices.to_numpy()[row]
    replica = column["replica"].dictionary_encode().indices.to_numpy()[row]
    known = column["local_queries"].is_valid().to_numpy(zero_copy_only=False)
    queries = column["local_queries"].fill_null(0).to_numpy()
    hits = column["local_hits"].fill_null(0).to_numpy()
    wrong = known & ((queries != column["prompt_tokens"].to_numpy()) | (hits > column["expected_local_max"].to_numpy()))
    return (
        int((count == 0).sum()),
        int((count > 1).sum()),
        int(((sha[:, 0] != sha[:, 1]) | (replica[:, 0] != replica[:, 1])).sum()),
        int(wrong.sum()),
    )


def with_pandas(tables: list[pa.Table], keys: list[str]) -> Answer:
    """Nullable integers, merge on (pair, key)."""
    frame = pa.concat_tables(tables).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    planned = pd.MultiIndex.from_product([range(1, len(tables) + 1), keys], names=["block", "key"])
    count = frame.groupby(["block", "key"]).size().reindex(planned, fill_value=0)
    off, on = frame[frame.plays == "off"], frame[frame.plays == "on"]
    both = off.merge(on, on=["pair", "key"], suffixes=("", "_on"))
    differ = (both.payload_sha256 != both.payload_sha256_on) | (both.replica != both.replica_on)
    wrong = (frame.local_queries != frame.prompt_tokens) | (frame.local_hits > frame.expected_local_max)
    return int((count == 0).sum()), int((count > 1).sum()), int(differ.sum()), int(wrong.fillna(value=False).sum())


def with_pyarrow(tables: list[pa.Table], keys: list[str]) -> Answer:
    """Acero joins."""
    table = pa.concat_tables(tables)
    count = table.group_by(["block", "key"]).aggregate([([], "count_all")])
    planned = pa.table({"block": np.repeat(np.arange(1, len(tables) + 1), len(keys)), "key": keys * len(tables)})
    missing = planned.join(count, ["block", "key"], join_type="left anti").num_rows
    off, on = table.filter(pc.field("plays") == "off"), table.filter(pc.field("plays") == "on")
    both = off.join(on, ["pair", "key"], join_type="inner", right_suffix="_on")
    differ = pc.or_(
        pc.not_equal(both["payload_sha256"], both["payload_sha256_on"]),
        pc.not_equal(both["replica"], both["replica_on"]),
    )
    wrong = pc.or_kleene(
        pc.not_equal(table["local_queries"], table["prompt_tokens"]),
        pc.greater(table["local_hits"], table["expected_local_max"]),
    )
    return missing, pc.sum(pc.greater(count["count_all"], 1)).as_py(), pc.sum(differ).as_py(), pc.sum(wrong).as_py()


def with_duckdb(tables: list[pa.Table], keys: list[str]) -> Answer:
    """SQL over the Arrow tables."""
    con = duckdb.connect()
    con.execute("set threads = 2")
    con.register("r", pa.concat_tables(tables))
    con.register("k", pa.table({"key": keys}))
    count = len(tables) + 1
    sql = f"""
      with n as (select b.block, k.key, count(r.key) c from range(1, {count}) b(block) cross join k
                 left join r on r.block = b.block and r.key = k.key group by all)
      select (select count(*) from n where c = 0), (select count(*) from n where c > 1),
        (select count(*) from r a join r b on a.pair = b.pair and a.key = b.key and a.plays = 'off' and b.plays = 'on'
         where a.payload_sha256 <> b.payload_sha256 or a.replica <> b.replica),
        (select count(*) from r where local_queries <> prompt_tokens or local_hits > expected_local_max)"""  # noqa: S608 - a number of our own
    return con.execute(sql).fetchone()


def best(run: Callable[[], Answer]) -> tuple[float, float, Answer]:
    """(wall, CPU) of the fastest of three, and the answer."""
    found = []
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        answer = run()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return *min(found), answer


def main() -> None:
    """Print one line an engine."""
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    tables, keys = make(blocks)
    lines = [
        f"{blocks:,} blocks, {blocks * len(keys):,} rows",
        "engine    wall s   CPU s   (missing, doubled, mismatched, wrong)",
    ]
    for name, kernel in (
        ("numpy", with_numpy),
        ("pandas", with_pandas),
        ("pyarrow", with_pyarrow),
        ("duckdb", with_duckdb),
    ):
        wall, cpu, answer = best(lambda kernel=kernel: kernel(tables, keys))
        lines.append(f"{name:8}  {wall:6.2f}  {cpu:6.2f}   {answer}")
    print("\n".join(lines))  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
