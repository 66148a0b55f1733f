"""Tables that are read when asked for: the same as the whole table, whoever asks and in whatever order."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_rows import blank

from harness.model.errors import SchemaError
from harness.store.schemas import arrow_schema, to_table
from harness.store.tables import BATCH, StoredTable, TableShelf, decoded

NAMES = ["key", "ttft_ns", "rules"]


def lay(root, count):
    """Folders with three rows each; the block number tells them apart."""
    folders = []
    for number in range(count):
        folder = root / f"{number:02d}-off"
        folder.mkdir()
        rows = [blank(block=number, key=f"k{i}", ttft_ns=None if i else 7, rules=["r"]) for i in range(3)]
        pq.write_table(to_table("requests", rows), folder / "requests.parquet", compression="zstd")
        folders.append(folder)
    return folders


@pytest.fixture
def folders(tmp_path):
    return lay(tmp_path, 2 * BATCH + 3)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield pool


def table(shelf, index, *, exact=True):
    return StoredTable(shelf, index, rows=3, exact=exact)


def test_selected_columns_are_those_of_the_whole_table_in_the_order_asked(folders):
    stored = table(TableShelf("requests", "requests", folders), 1)
    assert stored.select(NAMES[::-1]).equals(pq.read_table(folders[1] / "requests.parquet").select(NAMES[::-1]))


def test_names_schema_and_rows_are_known_without_the_file(folders):
    stored = table(TableShelf("requests", "requests", folders), 0)
    (folders[0] / "requests.parquet").unlink()
    assert stored.column_names == arrow_schema("requests").names
    assert (stored.num_rows, len(stored)) == (3, 3)


def test_whatever_else_is_asked_of_it_a_whole_table_answers(folders):
    stored = table(TableShelf("requests", "requests", folders), 0)
    assert [row["key"] for row in stored.to_pylist()] == ["k0", "k1", "k2"]
    assert stored.slice(0, 1).num_rows == 1


def test_a_column_the_schema_does_not_have_is_a_key_error(folders):
    with pytest.raises(KeyError, match="novel"):
        table(TableShelf("requests", "requests", folders), 0).column("novel")


@pytest.mark.parametrize("order", ["forward", "backward", "twice"])
def test_blocks_decoded_ahead_are_the_blocks_asked_for(folders, threads, order):
    shelf = TableShelf("requests", "requests", folders, threads)
    indexes = list(range(len(folders)))
    indexes = {"forward": indexes, "backward": indexes[::-1], "twice": indexes * 2}[order]
    seen = [table(shelf, index).select(["block", "key"])["block"][0].as_py() for index in indexes]
    assert seen == indexes


def test_other_columns_asked_in_between_do_not_mix_with_those_decoded_ahead(folders, threads):
    shelf = TableShelf("requests", "requests", folders, threads)
    for index in range(len(folders)):
        names = ["key"] if index % 5 == 4 else ["block", "ttft_ns"]
        assert table(shelf, index).select(names).column_names == names


def test_a_file_that_cannot_be_decoded_ahead_does_not_take_its_neighbours_along(folders):
    (folders[1] / "requests.parquet").write_bytes(b"PAR1 no")
    streams = decoded([folder / "requests.parquet" for folder in folders[:3]], ("key",))
    assert [stream is None for stream in streams] == [False, True, False]
    assert pa.ipc.open_stream(streams[2]).read_all()["key"].to_pylist() == ["k0", "k1", "k2"]


def test_a_file_that_changes_while_the_folder_is_read_is_said_and_not_guessed_at(folders):
    stored = table(TableShelf("requests", "requests", folders), 0)
    (folders[0] / "requests.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(SchemaError, match="changed while it was being read"):
        stored.select(["key"])


def test_a_table_of_another_schema_is_brought_to_todays_before_columns_are_taken(folders):
    path = folders[0] / "requests.parquet"
    old = pq.read_table(path).drop_columns(["sim_missed"])
    pq.write_table(old.replace_schema_metadata({b"kvabba.schema_version": b"0"}), path)
    stored = table(TableShelf("requests", "requests", folders), 0, exact=False)
    assert stored.select(["sim_missed", "key"]).to_pydict() == {"sim_missed": [None] * 3, "key": ["k0", "k1", "k2"]}
