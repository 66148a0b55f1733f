"""The table of experiment.md §7: what each event costs."""

import pytest

from harness.model.errors import ExitCode
from harness.model.rulebook import RULES
from harness.rules.facts import finding
from harness.rules.outcomes import TABLE, decisive, excluding, outcome

WHILE_MEASURING = [
    rule_id
    for rule_id in RULES
    if rule_id.split(".")[0]
    in {"leak", "treatment", "invariant", "counter", "pool", "process", "capacity", "isolation"}
]


@pytest.mark.parametrize("rule_id", WHILE_MEASURING)
def test_leaks_stop_at_once_with_4_everything_else_voids_with_5(rule_id):
    cost = outcome(rule_id)
    if rule_id.startswith("leak."):
        assert (cost.run, cost.exit_code, cost.resumable) == ("stops at once", ExitCode.LEAK, False)
    else:
        assert (cost.run, cost.exit_code, cost.resumable) == ("stops", ExitCode.VOID, False)
    assert cost.block == "void, archived"


@pytest.mark.parametrize("rule_id", [rule_id for rule_id in RULES if rule_id.startswith("row.")])
def test_a_bad_row_takes_its_unit_and_the_run_goes_on(rule_id):
    cost = outcome(rule_id)
    assert (cost.leaves, cost.run, cost.exit_code) == ("unit and partner", "goes on", ExitCode.FINDINGS)


@pytest.mark.parametrize("rule_id", ["answer.foreign", "answer.transfer_suspect"])
def test_foreign_and_suspect_answers_void_the_block(rule_id):
    assert outcome(rule_id).exit_code is ExitCode.VOID


@pytest.mark.parametrize(
    ("what", "code", "resumable"),
    [
        ("interrupted", 6, True),
        ("not_started", 3, True),
        ("declaration", 2, False),
        ("locked", 7, True),
        ("deadline", 8, True),
    ],
)
def test_what_is_no_rule_has_its_line_too(what, code, resumable):
    assert (TABLE[what].exit_code, TABLE[what].resumable) == (code, resumable)


def test_a_leak_decides_over_an_earlier_void():
    found = [finding("invariant.sources", "k", ""), finding("leak.local", "k", ""), finding("row.wrong", "k", "")]
    assert decisive(found).rule == "leak.local"
    assert excluding(found) == "row.wrong"


def test_rows_and_notes_decide_nothing():
    found = [finding("row.failed", "k", ""), finding("run.gap_exceeded", "k", "")]
    assert decisive(found) is None
    assert excluding(found[1:]) is None
