"""What the footer says is what decoding it says."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import blank

from harness.store import footers
from harness.store.footers import shape_of
from harness.store.schemas import arrow_schema, empty_table, to_table


def as_bytes(table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def no_decoding(monkeypatch):
    def refuse(*_):
        raise AssertionError("the footer was decoded")

    monkeypatch.setattr(footers, "_decoded", refuse)


@pytest.mark.parametrize("table", ["requests", "chunks", "counters"])
@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.usefixtures("no_decoding")
def test_a_file_of_the_projects_writer_is_recognised_without_decoding_its_footer(table, rows):
    shape = shape_of(as_bytes(to_table(table, [blank(table)] * rows)), table)
    assert (shape.rows, shape.exact, shape.wrong) == (rows, True, ())


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(0, 70_000))
def test_the_number_of_rows_is_the_footers_own(rows):
    table = pa.Table.from_arrays(
        [pa.nulls(rows, f.type) for f in arrow_schema("chunks")], schema=arrow_schema("chunks")
    )
    assert shape_of(as_bytes(table, row_group_size=max(rows, 1)), "chunks").rows == rows


def test_another_tables_file_is_not_taken_for_this_one():
    shape = shape_of(as_bytes(empty_table("chunks")), "counters")
    assert not shape.exact
    assert shape.wrong


def test_a_column_of_another_type_is_found():
    table = empty_table("chunks")
    at = table.schema.get_field_index("at_ns")
    shape = shape_of(as_bytes(table.set_column(at, "at_ns", pa.array([], pa.float64()))), "chunks")
    assert shape.wrong == ("column at_ns is double, must be int64",)


def test_a_column_that_is_missing_is_found():
    assert shape_of(as_bytes(empty_table("chunks").drop_columns(["chars"])), "chunks").wrong == (
        "column chars is missing",
    )


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1 no", b"PAR1" + b"\xff" * 8 + b"PAR1", b"\0" * 40])
def test_garbage_is_no_parquet_and_never_raises(data):
    assert "not readable as Parquet" in shape_of(data, "requests").wrong[0]


@pytest.mark.parametrize("options", [{"version": "1.0"}, {"data_page_version": "2.0"}, {"use_dictionary": False}])
def test_a_file_of_the_schema_that_was_written_otherwise_is_exact_too(options):
    shape = shape_of(as_bytes(to_table("chunks", [blank("chunks")]), **options), "chunks")
    assert (shape.rows, shape.exact, shape.wrong) == (1, True, ())
