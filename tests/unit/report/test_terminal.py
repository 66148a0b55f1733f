import io
from dataclasses import replace

import pytest
from made import hostile, many_arms, small
from rich.console import Console

from harness.model.findings import Finding
from harness.report import terminal_summary
from harness.report.terminal import clean


def printed(run, verdict, effects, **console):
    file = io.StringIO()
    terminal_summary(run, verdict, effects, console=Console(file=file, width=110, **console))
    return file.getvalue()


def test_the_verdict_comes_first():
    assert printed(*small()).startswith("VALID, simulated  synthetic 20261130-000000")


def test_a_void_run_says_so_before_any_number_and_beside_every_table():
    text = printed(*hostile())
    assert text.startswith("VOID, unvalidated, simulated")
    assert "TTFT, s (void)" in text
    assert "leak.local" in text


def test_piped_output_holds_no_escape_sequence():
    assert "\x1b" not in printed(*small())


def test_a_terminal_gets_colour():
    assert "\x1b[1;32mVALID" in printed(*small(), force_terminal=True, color_system="standard")


def test_the_answer_and_the_medians_are_printed():
    run, verdict, effects = small()
    text = printed(run, verdict, effects)
    assert effects.answer.split(";")[0] in text
    cross = effects.table.find("ttft/32k/cross")
    assert f"{cross.baseline_median:.3f}" in text


def test_every_treatment_has_its_own_row():
    lines = [line for line in printed(*many_arms()).splitlines() if "8k cross" in line]
    assert [line.split(",")[1].split()[0] for line in lines] == ["native", "on"]


def test_what_a_server_wrote_cannot_drive_the_terminal():
    run, verdict, effects = small()
    finding = Finding(rule="row.wrong", severity="incomplete", subject="k", detail="\x1b[2J[bold]gone[/bold]")
    text = printed(run, replace(verdict, findings=(finding,)), effects)
    assert "\x1b" not in text
    assert "[bold]gone[/bold]" in text


def test_a_reason_longer_than_the_line_is_not_cut_in_piped_output():
    run, verdict, effects = small()
    detail = "limited by the client " + "in many words " * 20 + "(CPU steal: 7.3 %)"
    finding = Finding(rule="row.client_limited", severity="incomplete", subject="k", detail=detail)
    assert detail in printed(run, replace(verdict, findings=(finding,)), effects, soft_wrap=True)


def test_a_cell_without_a_pair_left_is_named():
    run, verdict, effects = small()
    table = effects.table
    gone = table.find("ttft/32k/cross")
    kept = tuple(replace(e, units=()) if e.cell == gone.cell else e for e in table.effects)
    text = printed(run, verdict, replace(effects, table=replace(table, effects=kept)))
    assert "TTFT: no pair is left of 32k cross" in text
    assert "no pair is left" not in printed(run, verdict, effects)


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\u202e", "\x00"])
def test_control_characters_are_replaced(character):
    assert clean(f"a{character}b").plain == "a\N{REPLACEMENT CHARACTER}b"
