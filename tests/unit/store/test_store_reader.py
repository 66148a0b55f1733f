"""Reading back: what was changed after the fact becomes a finding, never an exception."""

import copy
from concurrent.futures import ThreadPoolExecutor

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.analysis import audit
from harness.model.errors import SchemaError
from harness.model.rows import SCHEMA_VERSION, TABLES
from harness.store import durable, read_run, verifying
from harness.store.folder import block_folders
from harness.store.schemas import arrow_schema, conform, empty_table
from harness.store.verifying import checking


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


@pytest.mark.parametrize("size", ['"x"', "null", "-5", "0", "1e300", "9" * 18, "true"])
def test_a_size_that_cannot_be_true_is_a_changed_file_and_never_raises(finished, size):
    entry = '{"files": {"requests.parquet": {"sha256": "x", "bytes": SIZE}}}'
    (block(finished) / "manifest.json").write_text(entry.replace("SIZE", size))
    assert "audit.digest" in rules(finished)


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


def test_the_log_of_committed_blocks_reaches_the_audit(finished):
    log = finished.read().header["block_log"]
    assert [(line["event"], line["block"], line["arm"]) for line in log] == [
        ("committed", 1, "off"),
        ("committed", 2, "on"),
    ]


def test_a_replaced_block_that_is_consistent_in_itself_is_found_by_the_audit(finished):
    assert "audit.block_replaced" not in {found.rule for found in audit(finished.read()).findings}
    path = block(finished) / "manifest.json"
    path.write_bytes(path.read_bytes() + b"\n")
    read = finished.read()
    assert read.file_findings == ()
    assert "audit.block_replaced" in {found.rule for found in audit(read).findings}


def test_an_open_screening_is_not_void_for_blocks_that_have_not_run(finished):
    durable.write_whole(finished.path / "blocks.jsonl", b"")
    for folder in (finished.path / "blocks").iterdir():
        folder.rename(finished.path / f".{folder.name}")
    read = finished.read()
    assert read.file_findings == ()
    verdict = audit(read)
    assert verdict.status == "incomplete"
    assert {found.rule for found in verdict.findings} == {"audit.block_missing"}


def test_a_superseded_block_whose_folder_is_gone_is_found(finished):
    with (finished.path / "blocks.jsonl").open("ab") as log:
        log.write(b'{"event":"superseded","position":3,"arm":"on","manifest_sha256":"abc"}\n')
    found = finished.read().file_findings
    assert [(f.rule, f.block) for f in found] == [("audit.file_missing", 3)]


def test_the_manifest_keeps_the_digests_of_its_files(finished):
    stored = orjson.loads((block(finished) / "manifest.json").read_bytes())["files"]
    files = finished.read().blocks[0].manifest["files"]
    assert dict(files.items()) == {name: entry["sha256"] for name, entry in stored.items()}
    assert any(name.startswith("fixtures/") for name in files)


def test_a_digest_in_payloads_json_that_is_not_the_bodys_is_found_by_the_audit(finished):
    folder = block(finished)
    payloads = orjson.loads((folder / "payloads.json").read_bytes())
    name = next(iter(payloads))
    payloads[name]["sha256"] = "0" * 64
    (folder / "payloads.json").write_bytes(orjson.dumps(payloads))
    details = [found.detail for found in audit(finished.read()).findings if found.rule == "audit.digest"]
    assert any(name in detail and "payloads.json says" in detail for detail in details)


def test_equal_payloads_of_a_pair_are_parsed_once(finished):
    first, second = (copy.copy(b.payloads) for b in finished.read().blocks)
    assert first
    assert all(first[name] is second[name] for name in first)


def test_a_pair_of_no_number_never_raises(finished):
    path = block(finished) / "manifest.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {"pair": "one"}))
    assert finished.read().blocks[0].pair == 0


def test_workers_find_what_one_process_finds(finished):
    next((block(finished) / "fixtures").iterdir()).write_bytes(b"another")
    folders = block_folders(finished.path / "blocks")
    alone = list(checking(folders, stems=("requests",), pool=None))
    with ThreadPoolExecutor() as pool:
        assert list(checking(folders, stems=("requests",), pool=pool)) == alone


def test_a_folder_of_many_blocks_is_read_by_processes_with_the_same_result(finished, monkeypatch):
    alone = finished.read()
    monkeypatch.setattr(verifying, "MANY", 1)
    shared = finished.read()
    assert shared.file_findings == alone.file_findings
    for here, there in zip(shared.blocks, alone.blocks, strict=True):
        assert here.manifest_sha256 == there.manifest_sha256
        assert here.requests.select(["key", "ttft_ns"]).equals(there.requests.select(["key", "ttft_ns"]))
