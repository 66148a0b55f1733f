"""What is done with a finished folder: judged once, summarised by unit or by cell."""

import orjson
import pytest

from harness.analysis import analyse, audit
from harness.wiring import results


@pytest.fixture
def judged(make_run):
    run = make_run()
    run.go()
    return results.judge(run.read())


def summary(judged, folder):
    results.keep_summary(judged, judged.gathered.conclude(), folder)
    return orjson.loads((folder / "summary.json").read_bytes())


def test_one_pass_gives_the_verdict_and_the_effects_of_separate_passes(judged):
    assert judged.verdict == audit(judged.run)
    assert judged.gathered.conclude().answer == analyse(judged.run, judged.verdict).answer
    assert judged.gathered.conclude().outputs == analyse(judged.run, judged.verdict).outputs


def test_a_summary_holds_one_line_a_matched_unit(judged, tmp_path):
    written = summary(judged, tmp_path)
    assert written["effects_per"] == "unit"
    assert written["effects"]
    assert all({"unit", "baseline", "treatment"} <= row.keys() for row in written["effects"])


def test_with_many_blocks_a_summary_holds_one_line_a_cell(judged, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "BY_CELL", 1)
    written = summary(judged, tmp_path)
    assert written["effects_per"] == "cell"
    assert len(written["effects"]) == len(judged.gathered.conclude().table.effects)
    assert written["effects"]
    assert all("block_pairs" in row for row in written["effects"])
