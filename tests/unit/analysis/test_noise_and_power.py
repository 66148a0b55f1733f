"""A/A noise floor, drift from block position, and how many block pairs a question needs."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import synthetic
from scipy import stats
from synthetic import Noise, make_run

from harness.analysis import audit, drift, effects, fingerprint_digest, floor_for, floors_of, merge, needs
from harness.analysis.floors import in_words
from harness.analysis.power import in_words as needs_in_words
from harness.analysis.power import pairs_needed, power, spread
from harness.analysis.signflip import intervals
from harness.model.stored import StoredRun

FEW = {"sizes": ("8k",), "sessions": 2, "turns": 2, "generation": (), "concurrency": ()}
NOISE = Noise(effect=0.0, block_sd=0.01)


@pytest.fixture(scope="module")
def aa() -> StoredRun:
    return make_run(synthetic.screening(order=("off",) * 8, **FEW), NOISE)


@pytest.fixture(scope="module")
def screening() -> StoredRun:
    return make_run(synthetic.screening(**FEW), Noise(block_sd=0.003, seed=7))


def test_an_aa_screening_plays_a_pseudo_treatment_and_shows_only_noise(aa: StoredRun) -> None:
    table = effects(aa, audit(aa))
    assert (table.aa, table.treatments) == (True, ("on",))
    assert all(abs(effect.mean_change_pct) < 5 for effect in table.effects)


def test_the_floor_is_the_calibrated_spread_of_aa_pairs(aa: StoredRun, screening: StoredRun) -> None:
    table = effects(aa, audit(aa))
    kept = floors_of(aa, table)
    cell = table.find("ttft/8k/cold")
    floor = floor_for(kept, screening, cell.cell, pairs=2)
    d = np.array([p.log_ratio for p in cell.per_pair])
    expected = math.expm1(stats.t.ppf(0.975, 4) * math.sqrt((d**2).mean()) / math.sqrt(2))
    assert floor.pct == pytest.approx(100 * expected)
    assert (floor.aa_pairs, floor.for_pairs) == (4, 2)
    assert floor.largest_pct == pytest.approx(max(abs(p.change_pct) for p in cell.per_pair))


def test_the_floor_holds_95_percent_of_screenings_without_an_effect() -> None:
    rng = np.random.default_rng(0)
    kept = rng.normal(0, 0.01, (4_000, 4))
    means = rng.normal(0, 0.01, (4_000, 2)).mean(axis=1)
    half = stats.t.ppf(0.975, 4) * np.sqrt((kept**2).mean(axis=1)) / np.sqrt(2)
    assert np.mean(np.abs(means) <= half) == pytest.approx(0.95, abs=0.012)


def test_the_floor_is_printed_beside_each_effect_of_the_same_fingerprint(aa: StoredRun, screening: StoredRun) -> None:
    kept = floors_of(aa, effects(aa, audit(aa)))
    table = effects(screening, audit(screening), floors=json.loads(json.dumps(kept)))
    effect = table.find("session_wall/32k/fixed")
    assert effect.floor is not None
    assert effect.inside_floor is True
    assert table.find("ttft/8k/cross").inside_floor is False
    assert in_words(-0.8, replace(effect.floor, pct=1.1)) == "effect −0.8 %, A/A floor ±1.1 %"


def test_another_fingerprint_has_no_floor(aa: StoredRun, screening: StoredRun) -> None:
    kept = floors_of(aa, effects(aa, audit(aa)))
    other = replace(screening, header={"host": {"cpu": "another"}})
    assert effects(other, audit(screening), floors=kept).find("ttft/8k/cold").floor is None


def test_the_fingerprint_ignores_pids_and_the_other_arms(aa: StoredRun, screening: StoredRun) -> None:
    assert fingerprint_digest(aa, "off") == fingerprint_digest(screening, "off")
    assert fingerprint_digest(screening, "off") != fingerprint_digest(screening, "on")
    assert fingerprint_digest(screening, "native") is None


def test_aa_runs_are_pooled_and_none_counts_twice(aa: StoredRun) -> None:
    kept = floors_of(aa, effects(aa, audit(aa)))
    assert merge(kept, kept) == kept
    again = replace(aa, run="another")
    pooled = merge(kept, floors_of(again, effects(again, audit(again))))
    assert next(iter(pooled.values()))["ttft/8k/cold"]["pairs"] == 8


def test_only_an_aa_screening_makes_a_floor(screening: StoredRun, aa: StoredRun) -> None:
    with pytest.raises(ValueError, match="no A/A"):
        floors_of(screening, effects(screening, audit(screening)))
    with pytest.raises(ValueError, match="void"):
        floors_of(aa, effects(aa, replace(audit(aa), status="void")))


def test_drift_is_found_per_block_position_in_both_arms() -> None:
    run = make_run(synthetic.screening(order=("off", "on", "on", "off") * 2, **FEW), Noise(request_sd=0, drift=0.01))
    found = [d for d in drift(run, audit(run)) if d.cell.id == "ttft/8k/cold"]
    assert {d.arm: (d.early, d.late) for d in found} == {"off": ((1, 5), (4, 8)), "on": ((2, 6), (3, 7))}
    assert all(d.pct_per_block == pytest.approx(100 * math.expm1(0.01), rel=1e-3) for d in found)
    assert found[0].label == "off: block 1 against 4, 5 against 8"


def test_linear_drift_cancels_in_the_paired_mean() -> None:
    still = make_run(synthetic.screening(**FEW), Noise(request_sd=0))
    moving = make_run(synthetic.screening(**FEW), Noise(request_sd=0, drift=0.02))
    one, other = (effects(r, audit(r)).find("ttft/8k/cold").estimate_pct for r in (still, moving))
    assert other == pytest.approx(one, abs=0.001)


def test_power_agrees_with_simulated_screenings() -> None:
    rng = np.random.default_rng(11)
    for n, delta in ((6, 1.2), (8, 0.9), (10, 0.9), (12, 0.6)):
        x = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
        low, high, _ = intervals(rng.normal(size=(1_500, n)) * 0.04 + delta * 0.04 + 0.1 * x, x)
        seen = np.mean((low > 0) | (high < 0))
        assert power(n, 100 * math.expm1(delta * 0.04), 0.04) == pytest.approx(seen, abs=0.04)


def test_power_grows_with_pairs_and_effect_and_is_nothing_below_six() -> None:
    assert power(5, 50.0, 0.01) == 0.0
    assert power(8, 2.0, 0.02) < power(12, 2.0, 0.02) < power(12, 3.0, 0.02)
    assert power(12, 500.0, 0.001) == pytest.approx(1.0)
    assert power(6, 1.0, 0.0) == 1.0


def test_pairs_needed_is_the_first_whole_palindrome_that_suffices() -> None:
    n = pairs_needed(2.0, 0.02)
    assert n % 2 == 0
    assert power(n, 2.0, 0.02) >= 0.8 > power(n - 2, 2.0, 0.02)
    assert pairs_needed(0.01, 0.5) is None


def test_needs_name_pairs_blocks_and_assumptions_for_every_cell(aa: StoredRun) -> None:
    table = effects(aa, audit(aa))
    found = needs(table, 3.0)
    assert {need.cell.id for need in found} == {effect.cell.id for effect in table.effects}
    need = found[0]
    assert need.blocks == 2 * need.pairs
    assert need.predicted >= 0.8
    assert need.pairs_if_unlucky >= need.pairs
    assert "the true mean is 0" in need.assumptions
    assert "block pairs" in needs_in_words(found)


def test_an_earlier_screening_gives_the_spread_around_its_own_mean(screening: StoredRun) -> None:
    effect = effects(screening, audit(screening)).find("ttft/8k/cross")
    known = spread(effect, aa=False)
    assert known.freedom == 1
    assert known.sd == pytest.approx(np.std([p.log_ratio for p in effect.per_pair], ddof=1))


def test_a_percentage_that_cannot_be_resolved_is_refused(aa: StoredRun) -> None:
    table = effects(aa, audit(aa))
    for percent in (0.0, -100.0):
        with pytest.raises(ValueError, match="cannot be resolved"):
            needs(table, percent)
