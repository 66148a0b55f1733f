import csv
from dataclasses import replace
from statistics import mean, median

import orjson
import pytest
from llmd_benchmark_report import load_benchmark_report
from made import HOSTILE, hostile, many_arms, scaled, small

from harness.model.errors import HarnessError
from harness.model.findings import ExcludedUnit
from harness.model.rows import REQUESTS
from harness.report import export_llmd, write_observations_csv, write_requests_csv


def documents(folder, trio, **options):
    return {
        path.stem.rsplit("-", 1)[1]: orjson.loads(path.read_bytes()) for path in export_llmd(*trio, folder, **options)
    }


def test_every_arm_gives_a_document_that_the_formats_own_package_accepts(tmp_path):
    found = documents(tmp_path, many_arms())
    assert set(found) == {"off", "native", "on"}
    for document in found.values():
        assert load_benchmark_report(document).version == "0.2"


def test_exported_ttft_is_that_of_the_stored_rows_in_scaled_seconds(tmp_path):
    run, verdict, effects = scaled()
    rows = [row for block in run.blocks if block.plays == "on" for row in block.requests.to_pylist()]
    expected = [(row["first_content_ns"] - row["start_ns"]) / 1e9 / row["time_scale"] for row in rows]
    aggregate = documents(tmp_path, (run, verdict, effects))["on"]["results"]["request_performance"]["aggregate"]
    assert aggregate["latency"]["time_to_first_token"]["mean"] == pytest.approx(mean(expected))
    assert aggregate["latency"]["time_to_first_token"]["p50"] == pytest.approx(median(expected))
    assert aggregate["requests"]["total"] == len(rows)


def test_the_paired_cells_travel_with_their_verdict(tmp_path):
    trio = small()
    extra = documents(tmp_path, trio)["on"]["results"]["observability"]["kvabba"]
    cell = next(cell for cell in extra["cells"] if cell["cell"] == "ttft/8k/cross")
    assert extra["verdict"] == "valid"
    assert cell["mean_change_percent"] == trio[2].table.find("ttft/8k/cross").mean_change_pct


def test_a_void_screening_is_not_exported(tmp_path):
    with pytest.raises(HarnessError, match="is void"):
        export_llmd(*hostile(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_void_screening_exported_on_demand_says_that_it_is_void(tmp_path):
    document = documents(tmp_path, hostile(), void=True)["on"]
    assert {"verdict: void", "unvalidated", "simulated"} <= set(document["run"]["keywords"])


def test_a_unit_that_left_the_estimate_is_in_no_exported_statistic(tmp_path):
    run, verdict, effects = small()
    unit = ExcludedUnit(pair=1, unit="*", rule="row.wrong", arm="on", block=2, key=None, rows=1)
    document = documents(tmp_path, (run, replace(verdict, excluded_units=(unit,)), effects))["on"]
    rows = run.blocks[2].requests.to_pylist()
    aggregate = document["results"]["request_performance"]["aggregate"]
    assert aggregate["requests"]["input_length"]["mean"] == pytest.approx(mean(row["prompt_tokens"] for row in rows))


def test_the_flat_csv_holds_every_row_and_column_exactly(tmp_path):
    run = small()[0]
    with write_requests_csv(run, tmp_path / "r.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    stored = [row for block in run.blocks for row in block.requests.to_pylist()]
    assert list(read[0]) == [column.name for column in REQUESTS]
    assert [int(row["start_ns"]) for row in read] == [row["start_ns"] for row in stored]
    assert [row["external_hits"] for row in read] == [
        "" if row["external_hits"] is None else str(row["external_hits"]) for row in stored
    ]


def test_free_text_in_the_csv_is_no_formula(tmp_path):
    run = hostile()[0]
    with write_requests_csv(run, tmp_path / "r.csv").open(newline="", encoding="utf-8") as file:
        answers = {row["answer"] for row in csv.DictReader(file)}
    assert HOSTILE in answers
    assert not {answer for answer in answers if answer[:1] in "=+-@"} - {""}


def test_a_folder_without_blocks_gives_a_csv_with_its_header_only(tmp_path):
    run = replace(small()[0], blocks=())
    assert write_requests_csv(run, tmp_path / "r.csv").read_text().count("\n") == 1


def test_observations_hold_both_values_of_every_matched_unit(tmp_path):
    table = small()[2].table
    with write_observations_csv(table, tmp_path / "o.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert len(read) == sum(effect.units for effect in table.effects)
    first = next(iter(table.effects[0].observations))
    assert (float(read[0]["baseline"]), float(read[0]["treatment"])) == first[2:]
