"""Output checks, the comparison with the published figures, and the answer in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
import synthetic
from synthetic import Noise, edit, make_run

from harness.analysis import analyse, audit, beside_published, effects, output_summary
from harness.analysis.answer import percent
from harness.analysis.published import TTFT_S
from harness.model.stored import StoredRun


@pytest.fixture(scope="module")
def run() -> StoredRun:
    return make_run(synthetic.paper(), Noise(request_sd=0.0005))


def test_the_papers_checks_are_736_exact_32_forced_and_448_answerable_from_the_history(run: StoredRun) -> None:
    found = output_summary(run)
    assert (found.exact, found.forced, found.unchecked, found.answer_in_history, found.verifying) == (
        736,
        32,
        0,
        448,
        288,
    )
    assert "448 of the exact checks could have been answered from the history" in found.sentence


def test_outputs_are_counted_by_arm_and_verdict(run: StoredRun) -> None:
    spoiled = edit(run, 2, "chains/8k/0/cross", verdict="wrong", answer='{"alpha": 1}')
    spoiled = edit(spoiled, 1, "chains/8k/0/cold", ok=False, verdict=None)
    found = output_summary(spoiled)
    assert found.by_arm == {
        "off": {"correct": 367, "failed": 1, "forced_ok": 16},
        "on": {"correct": 367, "forced_ok": 16, "wrong": 1},
    }


def test_texts_are_compared_cold_to_hot_within_an_arm_and_between_arms(run: StoredRun) -> None:
    changed = edit(run, 2, "generation/8k/512/hot", answer_sha256="0" * 64)
    found = output_summary(changed)
    assert (found.cold_hot["off"].differing, found.cold_hot["on"].differing) == (0, 1)
    assert (found.between_arms["generation"].compared, found.between_arms["generation"].differing) == (16, 1)
    assert audit(edit(run, 2, "generation/8k/512/hot", answer="another prose")).status == "valid"


def test_a_paper_like_run_is_set_beside_all_published_figures(run: StoredRun) -> None:
    found = beside_published(effects(run, audit(run)), run.screening.workloads)
    ttft = [line for line in found.lines if line.group == "ttft"]
    sessions = [line for line in found.lines if line.group == "session"]
    windows = [line for line in found.lines if line.group == "window"]
    assert (len(ttft), len(sessions), len(windows)) == (24, 8, 4)
    assert all(line.within for line in (*ttft, *sessions))


def test_a_miss_is_listed_with_its_deviation(run: StoredRun) -> None:
    off, _ = TTFT_S["8k"]["cold"]
    table = effects(run, audit(run))
    slow = tuple(replace(e, baseline_median=off * 1.06) if e.cell.id == "ttft/8k/cold" else e for e in table.effects)
    found = beside_published(replace(table, effects=slow), run.screening.workloads)
    miss = next(line for line in found.misses if line.cell_id == "ttft/8k/cold")
    assert (miss.side, miss.within) == ("off", False)
    assert miss.deviation == pytest.approx(6.0)
    assert "TTFT 8k cold, OFF" in found.sentence


def test_cells_that_the_run_lacks_stay_in_the_list_without_a_figure() -> None:
    run = make_run(synthetic.screening(sizes=("8k",)))
    found = beside_published(effects(run, audit(run)), run.screening.workloads)
    missing = next(line for line in found.lines if line.cell_id == "ttft/256k/cold")
    assert (missing.measured, missing.deviation, missing.within) == (None, None, None)


def test_sessions_of_other_lengths_and_aa_screenings_are_not_compared() -> None:
    run = make_run(synthetic.screening())
    found = beside_published(effects(run, audit(run)), run.screening.workloads)
    assert {line.group for line in found.lines} == {"ttft", "decode"}
    aa = make_run(synthetic.screening(order=("off",) * 4))
    assert analyse(aa, audit(aa)).published is None


def test_the_answer_names_sessions_by_size_and_says_that_two_pairs_claim_nothing(run: StoredRun) -> None:
    text = analyse(run, audit(run)).answer
    assert "lternating sessions at 128k: −4" in text
    assert "; fixed: +0." in text
    assert text.endswith("2 block pairs: no interval and no claim of significance (at least 6 are needed).")


def test_the_answer_of_a_void_screening_begins_with_that(run: StoredRun) -> None:
    spoiled = edit(run, 1, "chains/8k/0/cold", local_hits=16)
    text = analyse(spoiled, audit(spoiled)).answer
    assert text.startswith("This screening is void (leak.local: chains/8k/0/cold)")


def test_the_answer_of_an_incomplete_screening_says_how_much_left(run: StoredRun) -> None:
    spoiled = edit(run, 2, "chains/8k/0/cross", client_limited="gc")
    text = analyse(spoiled, audit(spoiled)).answer
    assert text.startswith("This screening is incomplete: 10 of 768 rows left the estimate")
    assert "inconclusive" in text


@pytest.mark.parametrize(
    ("value", "text"), [(-44.61, "−44.6 %"), (0.31, "+0.3 %"), (-0.02, "0.0 %"), (float("nan"), "no figure")]
)
def test_percentages_are_signed_with_a_real_minus(value: float, text: str) -> None:
    assert percent(value) == text
