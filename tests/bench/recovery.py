"""Does a screening recover what the simulator was configured with? `python -m tests.bench.recovery RUN`.

For every chain row of a run on the simulator: TTFT as measured through the whole pipeline, scaled, against the TTFT
that the declared time model gives for its counted tokens and hits. Exit code 1 where a median differs by more than 5 %.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

from harness import config
from harness.sim.settings import ReplicaSettings, load
from harness.sim.timing import predict_ttft

LIMIT = 0.05


def rows(run: Path) -> pd.DataFrame:
    """Chain rows of every block with measured and configured TTFT in s at scale 1."""
    screening = config.from_json((run / "declaration.json").read_bytes())
    time = load(ReplicaSettings, json.dumps(dict(screening.engine.options["settings"]))).time
    tables = [pd.read_parquet(path) for path in sorted(run.glob("blocks/*/requests.parquet"))]
    chains = pd.concat(tables).query("workload == 'chains'")
    chains["measured"] = chains.ttft_ns / 1e9 / chains.time_scale
    chains["configured"] = [
        predict_ttft(time, row.prompt_tokens, row.local_hits, int(row.external_hits or 0), connector=row.arm != "off")
        for row in chains.itertuples()
    ]
    return chains


def main() -> int:
    """Print medians a cell; 1 where one is off by more than 5 %."""
    table = rows(Path(sys.argv[1])).groupby(["size", "role", "arm"])[["measured", "configured"]].median()
    table["deviation %"] = 100 * (table.measured / table.configured - 1)
    print(table.round(4).to_string())  # noqa: T201 - a benchmark prints
    cross = table.xs("cross", level="role")["deviation %"].abs().max()
    print(f"largest deviation of a cross-replica median: {cross:.2f} % (limit {100 * LIMIT:g} %)")  # noqa: T201 - the same
    return int(cross > 100 * LIMIT)


if __name__ == "__main__":
    sys.exit(main())
