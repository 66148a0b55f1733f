import pytest
from made import scaled, small

from harness.report.requests import request_view


@pytest.fixture
def row():
    return small()[0].blocks[0].requests.to_pylist()[0]


def test_shown_seconds_are_nanoseconds_over_the_time_scale():
    row = scaled()[0].blocks[0].requests.to_pylist()[0]
    assert row["time_scale"] == 0.05
    assert request_view(row).ttft == f"{row['ttft_ns'] / 1e9 / 0.05:,.3f}"


def test_stages_are_milliseconds_after_the_start_stamp(row):
    stages = dict(request_view(row).stages)
    assert stages["connected"] == f"{(row['connected_ns'] - row['start_ns']) / 1e6:,.3f}"
    assert list(stages)[:2] == ["connect begins", "connected"]


def test_a_stage_that_did_not_happen_is_left_out(row):
    assert "first reasoning" not in dict(request_view(row | {"first_reasoning_ns": None}).stages)


def test_the_spans_of_a_timeline_fill_it_from_start_to_row(row):
    spans = request_view(row).spans
    assert [span.kind for span in spans] == ["connect", "send", "wait", "decode", "tail"]
    assert spans[0].x == 0
    assert spans[-1].x + spans[-1].width == pytest.approx(1000)


def test_a_request_that_failed_before_content_has_only_the_spans_it_reached(row):
    dead = dict.fromkeys(
        ("first_content_ns", "last_content_ns", "finish_ns", "usage_ns", "done_ns", "ttft_ns", "decode_rate")
    )
    view = request_view(row | dead | {"ok": False, "failure_kind": "reset", "failure_detail": "peer"})
    assert [span.kind for span in view.spans] == ["connect", "send"]
    assert (view.ttft, view.failure) == ("–", "reset: peer")


def test_a_hit_outside_its_expectation_is_marked(row):
    lines = {line.name: line for line in request_view(row | {"local_hits": 16}).counters}
    assert (lines["local hits"].measured, lines["local hits"].expected, lines["local hits"].ok) == ("16", "0", False)
    assert lines["external hits"].ok is True


def test_a_counter_that_does_not_exist_is_not_shown_as_zero(row):
    assert "external hits" not in {line.name for line in request_view(row | {"external_hits": None}).counters}


def test_an_answer_in_the_history_is_labelled(row):
    assert any("history" in note for note in request_view(row | {"answer_in_history": True}).notes)


def test_a_rule_is_shown_with_its_title(row):
    assert request_view(row | {"rules": ["leak.local"]}).notes == (
        "leak.local: more local hits than this request can have",
    )


def test_a_missed_deadline_of_the_simulator_is_said(row):
    notes = request_view(row | {"sim_missed": 2, "sim_max_late_ns": 3_000_000}).notes
    assert notes == ("the simulator missed 2 deadline(s), by up to 3.000 ms",)
