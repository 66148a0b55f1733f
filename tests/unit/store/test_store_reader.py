"""Reading back: what was changed after the fact becomes a finding, never an exception."""

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.model.errors import SchemaError
from harness.model.rows import SCHEMA_VERSION, TABLES
from harness.store import read_run
from harness.store.schemas import arrow_schema, conform, empty_table


@pytest.fixture
def finished(make_run):
    run = make_run()
    run.go()
    return run


def rules(run):
    return [finding.rule for finding in run.read().file_findings]


def block(run, name="01-off"):
    return run.path / "blocks" / name


def test_a_finished_run_reads_back_without_findings(finished):
    read = finished.read()
    assert read.file_findings == ()
    assert [(b.position, b.arm, b.pair, b.plays) for b in read.blocks] == [(1, "off", 1, "off"), (2, "on", 1, "on")]
    assert [b.requests.num_rows for b in read.blocks] == [10, 10]
    assert read.blocks[0].chunks.num_rows > 0
    assert [entry["position"] for entry in read.header["blocks"]] == [1, 2]


def test_chunks_and_counters_stay_unread_when_not_wanted(finished):
    read = read_run(finished.path, lambda _: (finished.screening, finished.plan), chunks=False)
    assert read.blocks[0].chunks is None
    assert read.blocks[0].counters is None


def test_payloads_are_read_with_their_fields(finished):
    payloads = finished.read().blocks[0].payloads
    assert len(payloads) == 2 + 1
    assert all(payloads[key]["payload_id"] == key for key in payloads)


def test_an_altered_byte_in_a_fixture_is_found(finished):
    path = next((block(finished) / "fixtures").iterdir())
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    found = finished.read().file_findings
    assert [f.rule for f in found] == ["audit.digest"]
    assert path.name in found[0].subject
    assert found[0].block == 1


@pytest.mark.parametrize("name", ["requests.parquet", "payloads.json", "logs/A.log"])
def test_a_missing_file_is_found(finished, name):
    (block(finished) / name).unlink()
    assert rules(finished) == ["audit.file_missing"]


def test_a_file_that_was_added_is_found(finished):
    (block(finished) / "fixtures" / "extra.json").write_text("{}")
    assert rules(finished) == ["audit.digest"]


def test_a_rewritten_table_is_found_and_still_read(finished):
    path = block(finished) / "requests.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    read = finished.read()
    assert [f.rule for f in read.file_findings] == ["audit.digest"]
    assert read.blocks[0].requests.num_rows == 9


def test_a_block_without_a_manifest_is_found_and_left_out(finished):
    (block(finished) / "manifest.json").unlink()
    read = finished.read()
    assert [f.rule for f in read.file_findings] == ["audit.no_manifest"]
    assert [b.position for b in read.blocks] == [2]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff\xfe", b'{"files": 3, "pair": null}', b'{"files": {"a": 1}}']
)
def test_a_broken_manifest_never_raises(finished, content):
    (block(finished) / "manifest.json").write_bytes(content)
    assert rules(finished)


def test_garbage_in_place_of_parquet_never_raises(finished):
    (block(finished) / "requests.parquet").write_bytes(b"PAR1 no")
    assert set(rules(finished)) == {"audit.digest", "audit.schema"}


def test_a_partial_block_is_not_matched(finished):
    (finished.path / "blocks" / ".03-on.partial").mkdir()
    assert [b.position for b in finished.read().blocks] == [1, 2]


def test_a_folder_without_a_declaration_says_what_to_give_instead(tmp_path):
    with pytest.raises(SchemaError, match="not a results folder"):
        read_run(tmp_path, lambda _: None)


def test_a_changed_declaration_is_found(finished):
    header = finished.path / "run.json"
    values = orjson.loads(header.read_bytes())
    header.write_bytes(orjson.dumps(values | {"declaration_digest": "another"}))
    assert rules(finished) == ["audit.settings"]


def test_a_file_of_an_older_version_lacks_columns_that_become_null():
    old = empty_table("requests").drop_columns(["sim_missed"])
    old = old.replace_schema_metadata({b"kvabba.schema_version": b"0"})
    table, wrong = conform(old, "requests")
    assert wrong == []
    assert table.schema.equals(arrow_schema("requests"))


def test_a_file_of_today_that_lacks_a_column_is_wrong():
    table, wrong = conform(
        empty_table("requests").drop_columns(["sim_missed"]).append_column("novel", pa.array([], pa.int64())),
        "requests",
    )
    assert wrong == ["unknown column novel", "column sim_missed is missing"]
    assert table.column_names == [column.name for column in TABLES["requests"]]


def test_a_double_where_an_integer_must_be_is_wrong_and_not_rounded():
    stored = empty_table("chunks")
    position = stored.schema.get_field_index("at_ns")
    stored = stored.set_column(position, "at_ns", pa.array([], pa.float64()))
    assert conform(stored, "chunks")[1] == ["column at_ns is double, must be int64"]


@pytest.mark.parametrize("version", [None, b"", b"x", str(SCHEMA_VERSION + 1).encode()])
def test_a_version_from_the_future_or_none_is_not_guessed_at(version):
    metadata = {} if version is None else {b"kvabba.schema_version": version}
    _, wrong = conform(empty_table("chunks").replace_schema_metadata(metadata), "chunks")
    assert len(wrong) == 1
