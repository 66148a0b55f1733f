from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.model.errors import SchemaError
from harness.probes import evidence
from harness.probes.evidence import Validation, latest_of, load_validation, save
from harness.probes.results import LAYERS, Check, from_checks, not_validated

RESULTS = {
    "service": from_checks("service", [Check(name="exact", trials=25, failures=0, data={"k": [1]})], facts={"n": 1}),
    "copy_ordering": not_validated("copy_ordering", "no CUDA device"),
}
KNOWN = Validation(
    fingerprint_digest="0123456789abcdef" * 4,
    screening="quick",
    arm="on",
    identity={"model": "m"},
    layers=RESULTS,
    at_utc=dict.fromkeys(RESULTS, "2026-11-30T18:00:00Z"),
    processes={"A": "d"},
)


def test_what_was_saved_is_loaded_again(tmp_path: Path) -> None:
    save(tmp_path, KNOWN, {})
    assert load_validation(tmp_path, KNOWN.fingerprint_digest) == KNOWN


def test_another_fingerprint_has_no_validation(tmp_path: Path) -> None:
    save(tmp_path, KNOWN, {})
    assert load_validation(tmp_path, "f" * 64) is None


def test_the_newest_validation_of_an_arm_is_found_by_name(tmp_path: Path) -> None:
    newer = replace(KNOWN, fingerprint_digest="e" * 64, at_utc=dict.fromkeys(RESULTS, "2026-12-01T00:00:00Z"))
    for one in (newer, KNOWN, replace(newer, fingerprint_digest="d" * 64, arm="native")):
        save(tmp_path, one, {})
    assert latest_of(tmp_path, "quick", "on") == newer


def test_a_run_of_one_layer_keeps_the_others() -> None:
    single = replace(KNOWN, layers={"protocol": from_checks("protocol", [Check(name="x", trials=1, failures=0)],
                     facts={})}, at_utc={"protocol": "later"}, processes={})  # fmt: skip
    merged = single.renewed(KNOWN)
    assert set(merged.layers) == {"service", "copy_ordering", "protocol"}
    assert merged.processes == {"A": "d"}


def test_nothing_of_another_fingerprint_is_kept() -> None:
    other = replace(KNOWN, fingerprint_digest="9" * 64, layers={})
    assert other.renewed(KNOWN).layers == {}


def test_a_layer_that_did_not_run_is_never_counted_as_passed() -> None:
    assert (KNOWN.status, KNOWN.passed) == ("partly", ("service",))
    assert set(KNOWN.not_validated) == set(LAYERS) - {"service"}


def test_the_reports_rows_name_every_layer_and_the_missing_part() -> None:
    rows = evidence.rows(KNOWN)
    assert [row["layer"] for row in rows] == list(LAYERS)
    assert rows[1]["missing"] == "no CUDA device"
    assert rows[0]["status"] == "not validated"


def test_checks_are_stored_under_the_written_down_schema(tmp_path: Path) -> None:
    folder = save(tmp_path, KNOWN, {})
    table = pq.read_table(folder / "checks.parquet")
    assert table.schema.equals(evidence.CHECKS)
    assert [(row["layer"], row["trials"], row["ok"]) for row in table.to_pylist()] == [
        ("copy_ordering", None, None),
        ("service", 25, True),
    ]


def test_a_file_of_another_kind_is_a_schema_error(tmp_path: Path) -> None:
    folder = save(tmp_path, KNOWN, {})
    (folder / "validation.json").write_text('{"schema": 1}')
    with pytest.raises(SchemaError):
        load_validation(tmp_path, KNOWN.fingerprint_digest)
