from dataclasses import replace

import pytest
from made import analysed, many_arms, small
from synthetic import make_run, with_rows

from harness.model.findings import Finding
from harness.report.drilldown import drilldown


def keys(drill):
    return [(pair.pair, pair.key) for _, pairs in drill.groups for pair in pairs]


def test_every_pair_of_a_small_screening_has_its_drilldown():
    run, verdict, _ = small()
    drill = drilldown(run, verdict)
    rows = {(block.pair, key) for block in run.blocks for key in block.requests.column("key").to_pylist()}
    assert set(keys(drill)) == rows
    assert (drill.shown, drill.total, drill.flagged) == (len(rows), len(rows), 0)


def test_a_pair_shows_the_baseline_first_and_every_arm():
    run, verdict, _ = many_arms()
    _, pairs = drilldown(run, verdict).groups[0]
    assert {tuple(request.plays for request in pair.requests) for pair in pairs} == {("off", "native", "on")}


def test_anchors_are_unique():
    run, verdict, _ = small()
    drill = drilldown(run, verdict)
    assert len(set(drill.anchors.values())) == drill.total


def test_pairs_with_findings_come_first_in_line_when_not_all_fit():
    run, verdict, _ = small()
    last = run.blocks[2].requests.column("key").to_pylist()[-1]
    finding = Finding(rule="row.wrong", severity="incomplete", subject=last, detail="", block=3)
    drill = drilldown(run, replace(verdict, findings=(finding,)), limit=3)
    assert (2, last) in keys(drill)
    assert (drill.shown, drill.flagged) == (3, 1)


@pytest.mark.parametrize(
    "change",
    [{"rules": ["row.wrong"]}, {"excluded": "row.client_limited"}, {"ok": False, "failure_kind": "reset"}],
    ids=["rule", "excluded", "failed"],
)
def test_a_row_that_something_was_found_in_is_flagged(change):
    run, verdict, _ = small()
    key = run.blocks[0].requests.column("key")[5].as_py()
    spoiled = with_rows(run, 1, lambda rows: [row | change if row["key"] == key else row for row in rows])
    drill = drilldown(spoiled, verdict)
    assert drill.flagged == 1
    flagged = [pair for _, pairs in drill.groups for pair in pairs if pair.flags]
    assert [(pair.pair, pair.key) for pair in flagged] == [(1, key)]


def test_a_row_without_a_key_does_not_break_the_page():
    run = with_rows(make_run(), 1, lambda rows: [row | {"key": None} if i == 3 else row for i, row in enumerate(rows)])
    run, verdict, _ = analysed(run)
    assert drilldown(run, verdict).total == small()[0].blocks[0].requests.num_rows * 2


def test_the_change_of_a_pair_is_that_of_its_scaled_ttft():
    run, verdict, _ = small()
    off, on = (block.requests.to_pylist()[0]["ttft_ns"] for block in run.blocks[:2])
    pair = drilldown(run, verdict).groups[0][1][0]
    expected = 100 * (on / off - 1)
    assert pair.change.replace("−", "-").replace("\u202f%", "") == f"{expected:+.1f}"


def test_an_arm_without_the_row_has_a_dash_in_its_own_column():
    run, verdict, _ = small()
    key = run.blocks[0].requests.column("key")[0].as_py()
    cut = with_rows(run, 1, lambda rows: [row for row in rows if row["key"] != key])
    pair = next(
        pair for _, pairs in drilldown(cut, verdict).groups for pair in pairs if (pair.pair, pair.key) == (1, key)
    )
    assert pair.values[0] == "–"
    assert pair.values[1] != "–"
    assert pair.change == "–"
