"""Row building: absent is null, every column is there, sums follow their definitions."""

from dataclasses import replace

import pytest
from rule_cases import NOTHING, OFF, counted, cross, failed, payload, request, seen, window

from harness.model.counting import Snapshot, WindowCounters
from harness.model.observation import Stamps, StreamEvent, Usage
from harness.model.planned import PlannedBlock
from harness.model.rows import TABLES
from harness.run.rows import Identity, Measured, chunk_rows, counter_rows, decode_rate, hit_source, request_row

BLOCK = PlannedBlock(position=2, pair=1, arm="on", plays="on", warmups=(), requests=())
IDENTITY = Identity(screening="s", run="r", block=BLOCK, replicas=("A", "B"), pools=("pool",))
MS = 1_000_000


def row(observation, counters=None, req=None, **values):
    facts = window(req or request(), counters or counted(), (0, 0, 0, 0), observation=observation)
    measured = Measured(
        request=facts.request,
        payload=payload(),
        observation=observation,
        expectation=facts.expectation,
        verdict=values.pop("verdict", "correct"),
        recorded_ns=5,
        counters=facts.counters if counters is not False else None,
        **values,
    )
    return request_row(IDENTITY, measured)


def test_a_row_has_exactly_the_columns_of_the_schema():
    assert set(row(seen())) == {column.name for column in TABLES["requests"]}


def test_res_3_nothing_that_was_not_measured_is_zero():
    bare = replace(failed(), stamps=Stamps(start_ns=7), http_status=None)
    found = row(bare, verdict=None)
    for name in (
        "ttft_ns",
        "connect_ns",
        "ttft_after_connect_ns",
        "decode_rate",
        "prompt_tokens",
        "answer",
        "answer_sha256",
    ):
        assert found[name] is None, name
    assert found["failure_kind"] == "empty_success"


def test_res_3_a_ttft_of_less_than_half_a_millisecond_is_kept():
    stamps = Stamps(start_ns=1_000, first_content_ns=401_000)
    assert row(seen(stamps=stamps))["ttft_ns"] == 400_000


def test_met_2_a_missing_external_series_is_null():
    found = row(seen(), counted(external_hits=NOTHING, external_queries=NOTHING))
    assert (found["external_hits"], found["external_queries"]) == (None, None)
    assert found["hit_source"] == "none"


def test_met_3_all_four_raw_deltas_are_stored():
    found = row(seen(), counted(1000, 600, 200, external_queries=1000))
    assert [found[n] for n in ("local_queries", "local_hits", "external_queries", "external_hits")] == [
        1000,
        600,
        1000,
        200,
    ]


@pytest.mark.parametrize(
    ("local", "external", "source"),
    [
        (0, 0, "none"),
        (0, None, "none"),
        (32, 0, "local"),
        (0, 256, "external"),
        (32, 256, "local+external"),
        (None, None, "unknown"),
    ],
)
def test_the_hit_source_is_named(local, external, source):
    assert hit_source(local, external) == source


def test_tim_2_the_rate_counts_tokens_of_usage_never_chunks():
    stamps = Stamps(start_ns=0, first_content_ns=100 * MS, last_content_ns=200 * MS)
    assert decode_rate(20, stamps) == pytest.approx(190.0)
    assert decode_rate(None, stamps) is None
    assert decode_rate(1, stamps) is None
    assert decode_rate(20, Stamps(start_ns=0, first_content_ns=5, last_content_ns=5)) is None


def events(*completion):
    return tuple(
        StreamEvent(index=i, at_ns=i, user_ns=i, read_index=i // 2, kind="content", text="x", completion_tokens=tokens)
        for i, tokens in enumerate(completion)
    )


def test_tim_2_chunks_and_the_first_chunks_tokens_are_kept_apart():
    with_usage = row(seen(events=events(1, 6, 11, 16, 20)))
    assert (with_usage["content_chunks"], with_usage["first_chunk_tokens"]) == (5, 1)
    assert row(seen(events=events(None, None)))["first_chunk_tokens"] is None


def test_sse_3_events_that_share_one_read_are_counted():
    assert row(seen(events=events(1, 2, 3)))["coalesced_max"] == 2


def test_a_row_of_a_concurrency_window_has_no_counters_of_its_own():
    facts = window(request(), counted(), (0, 0, 0, 0))
    measured = Measured(
        request=facts.request,
        payload=payload(),
        observation=seen(),
        expectation=facts.expectation,
        verdict="correct",
        recorded_ns=5,
        counters=None,
    )
    found = request_row(IDENTITY, measured)
    assert (found["local_hits"], found["preemptions"], found["hit_source"]) == (None, None, "unknown")


def test_chunk_rows_have_exactly_the_columns_of_the_schema():
    rows = chunk_rows(IDENTITY, request(), seen(events=events(1, 2)))
    assert [set(r) for r in rows] == [{column.name for column in TABLES["chunks"]}] * 2


def test_counter_rows_say_increase_reset_or_missing():
    counters = WindowCounters(deltas={"A": counted(external_hits=NOTHING)})
    snapshot = Snapshot(target="A", at_ns=3, samples={}, running=None, waiting=None, process_start=None)
    rows = {r["counter"]: r for r in counter_rows(IDENTITY, "k", counters, {"A": snapshot}, {"A": snapshot})}
    assert set(rows["local_hits"]) == {column.name for column in TABLES["counters"]}
    assert rows["local_queries"]["delta"] == 2513
    assert (rows["external_hits"]["delta"], rows["external_hits"]["status"]) == (None, "missing")
    assert rows["local_hits"]["before_ns"] == 3


def test_a_lone_surrogate_in_an_answer_does_not_stop_the_row():
    assert row(seen(text="\ud800", usage=Usage(prompt_tokens=1, completion_tokens=1, cached_tokens=0)))["answer_sha256"]


def test_off_is_the_arm_that_shares_nothing():
    assert OFF.reach == "none"
    assert cross().replica == "B"
