"""A whole screening on real simulator processes through the command line, and what can be done with it afterwards.

A busy machine may limit the client or make the simulator miss a deadline; such rows leave the estimate and say so. What
must hold on any machine: counters, pairing, answers, files.
"""

import json

import psutil
import pyarrow.parquet as pq
import pytest
from cli_runs import ROOT, header, kvabba, only_run

DISTURBED = {"row.client_limited", "row.sim_missed", "unit.partner_excluded", "audit.failure_rates"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    done = kvabba(results, "run", "smoke", "--json")
    return results, done


def test_the_run_ends_without_a_void_finding(finished):
    _, done = finished
    verdict = json.loads(done.stdout)
    assert verdict["status"] in ("valid", "incomplete"), done.stderr
    assert done.returncode == (0 if verdict["status"] == "valid" else 1)
    grave = {f["rule"] for f in verdict["findings"] if f["severity"] in ("void", "incomplete")}
    assert grave <= DISTURBED
    assert verdict["rows"] == verdict["paired"] + verdict["excluded"] == 28


def test_progress_goes_to_standard_error_as_plain_lines(finished):
    _, done = finished
    assert "block 1/2 off · canary" in done.stderr
    assert "block 2/2 on · measure · chains/1k/0/cold · cold" in done.stderr
    assert "\x1b" not in done.stderr


def rows(results, block):
    path = only_run(results, "smoke") / "blocks" / block / "requests.parquet"
    return {row["key"]: row for row in pq.read_table(path).to_pylist()}


def test_cold_is_cold_and_cross_hits_every_whole_chunk_in_on_only(finished):
    results, _ = finished
    for block, chunks in (("01-off", 0), ("02-on", 1)):
        here = rows(results, block)
        cold, cross = here["chains/1k/0/cold"], here["chains/1k/0/cross"]
        assert (cold["local_hits"], cold["external_hits"] or 0) == (0, 0)
        assert cross["local_hits"] == 0
        assert (cross["external_hits"] or 0) == chunks * (cross["prompt_tokens"] // 256 * 256)
        assert cross["verdict"] == cold["verdict"] == "correct"


def test_partners_sent_the_same_bytes_to_the_same_replicas(finished):
    results, _ = finished
    off, on = (
        {k: (r["payload_sha256"], r["replica"]) for k, r in rows(results, b).items()} for b in ("01-off", "02-on")
    )
    assert off == on


def test_the_folder_holds_what_the_architecture_promises(finished):
    results, _ = finished
    run = only_run(results, "smoke")
    assert {"run.json", "declaration.json", "blocks.jsonl", "audit.json", "report.html", "summary.json"} <= {
        path.name for path in run.iterdir()
    }
    assert header(run)["status"] == "complete"
    assert header(run)["client_calibration"]["requests"] > 0
    log = (run / "blocks" / "02-on" / "logs" / "pool.log").read_text()
    assert log


def test_the_audit_can_be_repeated_from_the_files_alone(finished):
    results, done = finished
    again = kvabba(results, "audit", only_run(results, "smoke"), "--json")
    assert again.returncode == done.returncode
    assert json.loads(again.stdout)["status"] == json.loads(done.stdout)["status"]


def test_an_altered_fixture_is_found_by_the_audit(finished, tmp_path):
    results, _ = finished
    import shutil  # noqa: PLC0415 - one test needs it

    copy = tmp_path / "copy"
    shutil.copytree(only_run(results, "smoke"), copy)
    fixture = next((copy / "blocks" / "01-off" / "fixtures").iterdir())
    fixture.write_bytes(fixture.read_bytes().replace(b"a", b"b", 1))
    done = kvabba(results, "audit", copy)
    assert done.returncode == 1
    assert "audit.digest" in done.stdout


def test_a_finished_run_is_not_resumed(finished):
    results, _ = finished
    done = kvabba(results, "run", "smoke", "--resume", only_run(results, "smoke").name)
    assert done.returncode == 2
    assert "complete" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_process_of_the_run_is_left(finished):
    results, _ = finished
    assert [process.pid for process in psutil.process_iter() if _belongs(process, str(results))] == []


def _belongs(process, results):
    try:
        return process.environ().get("KVABBA_RESULTS") == results
    except psutil.Error:
        return False


def test_the_project_root_is_where_the_declarations_are():
    assert (ROOT / "blocks" / "smoke.toml").is_file()
