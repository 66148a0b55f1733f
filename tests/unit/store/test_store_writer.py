"""Writing blocks: exact types, whole or absent, never touching what was committed before."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from store_rows import blank

from harness.model.errors import LockedError, StoreError
from harness.model.rows import SCHEMA_VERSION
from harness.store import RunFolder
from harness.store import writer as writer_module
from harness.store.folder import current, read_log

BIG = 2**53 + 1


def create(root, name="r1"):
    return RunFolder.create(root, "s", name, header={"status": "open"}, declaration=b"{}")


@pytest.fixture
def folder(tmp_path):
    with create(tmp_path) as made:
        yield made


def commit(folder, position, arm, rows):
    with folder.writer(position, arm) as writer:
        writer.add("requests", rows)
        return folder.commit(writer, position, arm, {"arm": arm, "pair": 1})


def requests_file(folder, position, arm):
    return folder.path / "blocks" / f"{position:02d}-{arm}" / "requests.parquet"


def test_res_1_integers_stay_exact_beside_a_null_and_in_an_all_null_block(folder):
    commit(folder, 1, "off", [blank(local_hits=BIG), blank(local_hits=1)])
    commit(folder, 2, "on", [blank(local_hits=BIG), blank(local_hits=None)])
    commit(folder, 3, "on", [blank(local_hits=None)])
    paths = [requests_file(folder, position, arm) for position, arm in ((1, "off"), (2, "on"), (3, "on"))]
    schemas = [pq.read_schema(path) for path in paths]
    assert all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)
    assert schemas[0].field("local_hits").type == pa.int64()
    together = ds.dataset(paths).to_table(columns=["local_hits"])["local_hits"].to_pylist()
    assert together == [BIG, 1, BIG, None, None]


def test_every_file_says_its_schema_version_and_units(folder):
    commit(folder, 1, "off", [blank()])
    schema = pq.read_schema(requests_file(folder, 1, "off"))
    assert schema.metadata[b"kvabba.schema_version"] == str(SCHEMA_VERSION).encode()
    assert schema.field("ttft_ns").metadata[b"unit"] == b"ns"


def test_a_row_that_does_not_say_null_is_refused(folder):
    row = blank()
    del row["ttft_ns"]
    with pytest.raises(KeyError):
        commit(folder, 1, "off", [row])


def test_a_fraction_is_never_rounded_into_an_integer_column(folder):
    with pytest.raises(TypeError, match="ttft_ns"):
        commit(folder, 1, "off", [blank(ttft_ns=1.5)])


def test_an_empty_table_is_a_file_with_a_schema(folder):
    commit(folder, 1, "off", [])
    assert pq.read_table(requests_file(folder, 1, "off")).num_rows == 0


_KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from store_rows import blank
from harness.store import RunFolder
from harness.store import writer as w
folder, moment = RunFolder.open(Path(sys.argv[1])), sys.argv[2]
kill = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
writer = folder.writer(1, "off")
writer.add("requests", [blank() for _ in range(50)])
writer.flush()
if moment == "after rows":
    kill()
if moment == "before manifest":
    w.durable.write_whole = kill
if moment == "before rename":
    RunFolder._move = kill
folder.commit(writer, 1, "off", {"arm": "off"})
"""


@pytest.mark.parametrize("moment", ["after rows", "before manifest", "before rename"])
def test_res_2_a_killed_writer_leaves_the_older_block_whole_and_nothing_the_reader_matches(folder, moment):
    commit(folder, 2, "on", [blank(local_hits=7)])
    before = requests_file(folder, 2, "on").read_bytes()
    support = str(Path(__file__).parents[2] / "support")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(folder.path), moment, support], check=False)
    assert done.returncode == -9
    assert requests_file(folder, 2, "on").read_bytes() == before
    assert [entry.position for entry in folder.committed()] == [2]
    assert not (folder.path / "blocks" / "01-off").exists()
    assert folder.leftovers() == ((1, "off"),)


def test_res_2_a_full_disk_is_an_error_that_names_the_file_and_what_to_do(folder, monkeypatch):
    commit(folder, 2, "on", [blank(local_hits=7)])

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writer_module.durable, "sync_file", full)
    with pytest.raises(StoreError, match="No space left") as caught:
        commit(folder, 1, "off", [blank()])
    assert "--resume" in caught.value.hint
    assert [entry.position for entry in folder.committed()] == [2]


def test_res_2_a_full_disk_while_rows_are_written_is_the_same_error(folder, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StoreError, match=r"requests\.parquet"):
        commit(folder, 1, "off", [blank()])


def test_a_committed_block_is_never_overwritten(folder):
    commit(folder, 1, "off", [blank()])
    with pytest.raises(StoreError, match="exists already"):
        commit(folder, 1, "off", [blank()])


def test_an_excluded_block_is_whole_numbered_and_has_its_reason(folder):
    for k in (1, 2):
        with folder.writer(1, "off") as writer:
            writer.add("requests", [blank()])
            path = folder.exclude(writer, 1, "off", {"arm": "off"}, {"rule": "leak.local"})
        assert path.name == f"01-off-{k}"
        assert {"reason.json", "manifest.json", "requests.parquet"} <= {file.name for file in path.iterdir()}
    assert folder.committed() == ()


def test_superseding_moves_committed_and_partial_blocks_and_frees_the_position(folder):
    commit(folder, 1, "off", [blank()])
    folder.writer(2, "on").close()
    assert [path.name for path in folder.supersede(1, "off", {"rule": "run.superseded_block"})] == ["01-off-1"]
    assert [path.name for path in folder.supersede(2, "on", {"rule": "run.superseded_block"})] == ["02-on-1"]
    assert folder.committed() == ()
    assert folder.leftovers() == ()
    commit(folder, 1, "off", [blank()])
    assert [entry.position for entry in folder.committed()] == [1]


def test_the_log_survives_a_line_cut_by_a_crash(folder):
    commit(folder, 1, "off", [blank()])
    with (folder.path / "blocks.jsonl").open("ab") as file:
        file.write(b'{"event": "comm')
    assert [entry.position for entry in current(read_log(folder.path))] == [1]


def test_two_runs_cannot_share_a_folder(tmp_path):
    with create(tmp_path) as first:
        again = RunFolder.open(first.path)
        with pytest.raises(LockedError):
            again.lock()
        with pytest.raises(LockedError):
            create(tmp_path, "r2")
    with again:
        again.lock()


def test_two_runs_in_the_same_second_get_different_folders(tmp_path):
    with create(tmp_path):
        pass
    with create(tmp_path) as second:
        assert second.path.name == "r1-2"


def test_a_start_that_failed_leaves_only_its_logs(folder):
    with folder.writer(1, "off") as writer:
        (writer.logs / "A.log").write_text("no such model")
    folder.drop_partial(1, "off")
    assert folder.leftovers() == ()
    assert (folder.path / "logs" / "failed-start-01-off" / "A.log").read_text() == "no such model"
