import io
import json
from dataclasses import replace

import pytest
from made import analysed, hostile, small
from rich.console import Console
from synthetic import Noise, make_run, screening, with_block

from harness.model.errors import ExitCode
from harness.report import DifferentScreenings, Side, compare, comparison_json, print_comparison


def side(trio):
    run, verdict, effects = trio
    return Side(run=run, verdict=verdict, effects=effects)


def other_engine():
    run = make_run(noise=Noise(seed=2))
    spec = replace(run.screening.engine, model="another")
    return side(analysed(replace(run, screening=replace(run.screening, engine=spec))))


def test_two_screenings_of_one_set_up_stand_side_by_side():
    a, b = side(small()), side(analysed(make_run(noise=Noise(seed=2))))
    found = compare(a, b)
    line = next(line for line in found.lines if line.cell == "ttft/8k/cross")
    assert line.a.change_pct == a.effects.table.find("ttft/8k/cross").mean_change_pct
    assert line.points == line.b.change_pct - line.a.change_pct
    assert (found.differences, found.notice) == ((), "")


def test_other_processes_with_the_same_software_are_the_same_set_up():
    b = make_run(noise=Noise(seed=2))
    restarted = with_block(
        b, 1, lambda block: replace(block, manifest={**block.manifest, "fingerprints": {
            name: {**facts, "pid": 9} for name, facts in block.manifest["fingerprints"].items()}})
    )  # fmt: skip
    assert compare(side(small()), side(analysed(restarted))).differences == ()


def test_different_fingerprints_are_refused_and_the_difference_is_named():
    with pytest.raises(DifferentScreenings, match=r"engine\.model: m against another") as refused:
        compare(side(small()), other_engine())
    assert refused.value.exit_code is ExitCode.FINDINGS


def test_a_difference_that_is_allowed_is_said_in_every_output():
    found = compare(side(small()), other_engine(), allow_different=True)
    file = io.StringIO()
    print_comparison(found, Console(file=file, width=160))
    assert "engine.model: m against another" in file.getvalue()
    assert "engine.model: m against another" in json.loads(json.dumps(comparison_json(found)))["notice"]


def test_arms_that_only_one_screening_has_are_a_difference():
    three = side(analysed(make_run(screening(order=("off", "native", "on", "on", "native", "off")))))
    with pytest.raises(DifferentScreenings, match="only B has arm native"):
        compare(side(small()), three)


def test_a_void_side_is_said_to_be_no_evidence():
    found = compare(side(small()), side(hostile()), allow_different=True)
    assert "void, unvalidated, simulated: its figures are no evidence" in found.notice


def test_a_cell_that_one_side_lacks_has_no_difference():
    b = side(analysed(make_run(screening(sizes=("8k",)))))
    found = compare(side(small()), b, allow_different=True)
    line = next(line for line in found.lines if line.cell == "ttft/32k/cold")
    assert (line.b.change_pct, line.points) == (None, None)
