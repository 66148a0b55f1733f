"""Whatever rows go in come out, bit for bit."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import blank

from harness.model.rows import TABLES
from harness.store import RunFolder

_VALUES = {
    "str": st.text(max_size=20),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "list[str]": st.lists(st.text(max_size=5), max_size=3),
}


def rows(table):
    columns = TABLES[table]
    cells = {c.name: _VALUES[c.type] if c.required else st.none() | _VALUES[c.type] for c in columns}
    return st.lists(st.fixed_dictionaries(cells), max_size=4)


@settings(max_examples=25, deadline=None)
@given(first=rows("chunks"), second=rows("chunks"), counters=rows("counters"))
def test_rows_survive_the_file_in_order_and_type(first, second, counters):
    with tempfile.TemporaryDirectory() as root:
        folder = RunFolder.create(Path(root), "s", "r", header={}, declaration=b"{}")
        with folder, folder.writer(1, "off") as writer:
            writer.add("requests", [blank()])
            writer.add("chunks", first)
            writer.flush()
            writer.add("chunks", second)
            writer.add("counters", counters)
            folder.commit(writer, 1, "off", {})
        block = folder.path / "blocks" / "01-off"
        assert pq.read_table(block / "chunks.parquet").to_pylist() == [*first, *second]
        assert pq.read_table(block / "counters.parquet").to_pylist() == counters
