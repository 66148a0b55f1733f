"""The shipped three-arm screening, made smaller, on real simulator processes: no tier, a tier of each replica, a pool.

A busy machine may disturb rows; what must hold on any machine: nothing void, every arm compared with the baseline.
"""

import json

import pyarrow.parquet as pq
import pytest
from cli_runs import ROOT, header, kvabba, only_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder, results = tmp_path_factory.mktemp("declared"), tmp_path_factory.mktemp("results")
    text = (ROOT / "blocks" / "native.toml").read_text(encoding="utf-8")
    head, rest = text.split("[workloads.sessions]")
    _, warmup = rest.split("[workloads.warmup]")
    small = f"{head}[workloads.warmup]{warmup}".replace('name = "native"', 'name = "three"')
    path = folder / "three.toml"
    path.write_text(small.replace("chains = 2", "chains = 1"), encoding="utf-8")
    return results, kvabba(results, "run", path, "--json")


def test_nothing_of_three_arms_is_void(finished):
    _, done = finished
    verdict = json.loads(done.stdout)
    assert verdict["status"] in ("valid", "incomplete"), done.stderr
    assert not [found for found in verdict["findings"] if found["severity"] == "void"]
    assert verdict["rows"] == verdict["paired"] + verdict["excluded"] == 60


def test_an_arm_with_a_tier_of_each_replica_is_validated_before_it_runs(finished):
    results, _ = finished
    arms = header(only_run(results, "three"))["validation"]["arms"]
    assert set(arms) == {"native", "on"}
    assert not any(arm["decision"]["unvalidated"] for arm in arms.values())


def test_an_offload_tier_adds_the_last_block_and_never_reaches_the_other_replica(finished):
    results, _ = finished
    path = only_run(results, "three") / "blocks" / "02-native" / "requests.parquet"
    here = {row["key"]: row for row in pq.read_table(path).to_pylist()}
    again, cross = here["chains/4k/0/local-1"], here["chains/4k/0/cross"]
    assert again["prompt_tokens"] == 4000
    assert (again["local_hits"], again["external_hits"]) == (3968, 31)
    assert (cross["local_hits"], cross["external_hits"]) == (0, 0)
