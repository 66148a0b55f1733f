"""Audit and effects do not depend on row order, on how files are split, nor on what arms are called."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))

import synthetic

from harness.analysis import audit, effects, examine
from harness.analysis.cells import EffectTable
from harness.model.stored import StoredBlock, StoredRun

SMALL = {"sizes": ("8k",), "chains": 2, "sessions": 2, "turns": 2, "concurrency": (2,)}
KEYS = ("chains/8k/0/cross", "sessions/32k/fixed/1/turn-2", "generation/8k/512/hot")


@cache
def base(order: tuple[str, ...] = ("off", "on", "on", "off")) -> StoredRun:
    return synthetic.make_run(synthetic.screening(order=order, **SMALL), synthetic.Noise(block_sd=0.01, drift=0.003))


@st.composite
def runs(draw: st.DrawFn) -> StoredRun:
    """A clean screening, or one with a few spoiled rows."""
    run = base()
    for position, key, what in draw(
        st.lists(
            st.tuples(st.integers(1, 4), st.sampled_from(KEYS), st.sampled_from(("fail", "limit", "hit", "drop"))),
            max_size=3,
        )
    ):
        if what == "drop":
            run = synthetic.with_rows(run, position, lambda rows, key=key: [r for r in rows if r["key"] != key])
            continue
        changes = {
            "fail": {"ok": False, "verdict": None},
            "limit": {"client_limited": "gc"},
            "hit": {"local_hits": 4_096},
        }[what]
        if any(key == k for k in next(b for b in run.blocks if b.position == position).requests["key"].to_pylist()):
            run = synthetic.edit(run, position, key, **changes)
    return run


def same_effects(left: EffectTable, right: EffectTable) -> bool:
    return [comparable(e) for e in left.effects] == [comparable(e) for e in right.effects]


def comparable(effect: object) -> tuple[object, ...]:
    numbers = (effect.units, effect.pairs, effect.excluded_units, effect.per_pair, list(effect.observations))
    return (effect.cell.id, *numbers, repr((effect.baseline_median, effect.treated_median, effect.mean_change_pct)))


@settings(max_examples=25, deadline=None)
@given(runs(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(run: StoredRun, chance: object) -> None:
    def shuffle(block: StoredBlock) -> StoredBlock:
        order = list(range(block.requests.num_rows))
        chance.shuffle(order)
        return replace(block, requests=block.requests.take(order))

    shuffled = replace(run, blocks=tuple(shuffle(block) for block in run.blocks))
    one, other = audit(run), audit(shuffled)
    assert {(f.rule, f.subject, f.block) for f in one.findings} == {
        (f.rule, f.subject, f.block) for f in other.findings
    }
    assert (one.status, one.paired, one.excluded, set(one.excluded_units)) == (
        other.status, other.paired, other.excluded, set(other.excluded_units),
    )  # fmt: skip
    assert same_effects(effects(run, one), effects(shuffled, other))


@settings(max_examples=15, deadline=None)
@given(runs(), st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_splitting_files_does_not_matter(run: StoredRun, cuts: list[int], encode: bool) -> None:
    def split(block: StoredBlock) -> StoredBlock:
        table = block.requests
        edges = sorted({0, table.num_rows, *(min(cut, table.num_rows) for cut in cuts)})
        parts = [table.slice(a, b - a) for a, b in pairwise(edges)]
        if encode:  # another writer may dictionary-encode text
            parts = [
                part.set_column(i, n, part[n].dictionary_encode())
                for part in parts
                for i, n in [(part.column_names.index("unit"), "unit")]
            ]
        return replace(block, requests=pa.concat_tables(parts))

    pieces = replace(run, blocks=tuple(split(block) for block in run.blocks))
    assert audit(run) == audit(pieces)
    assert same_effects(effects(run, audit(run)), effects(pieces, audit(pieces)))


@settings(max_examples=15, deadline=None)
@given(runs(), st.tuples(st.sampled_from(("plain", "zz", "a b")), st.sampled_from(("shared", "AA", "ü"))))
def test_the_names_of_arms_do_not_matter(run: StoredRun, names: tuple[str, str]) -> None:
    called = dict(zip(("off", "on"), names, strict=True))
    renamed = rename(run, called)
    one, other = audit(run), audit(renamed)
    assert (one.status, one.rows, one.paired, one.excluded) == (other.status, other.rows, other.paired, other.excluded)
    assert [(f.rule, f.subject, f.block) for f in one.findings if f.rule != "audit.failure_rates"] == [
        (f.rule, f.subject, f.block) for f in other.findings if f.rule != "audit.failure_rates"
    ]
    assert {(u.pair, u.unit, called[u.arm]) for u in one.excluded_units} == {
        (u.pair, u.unit, u.arm) for u in other.excluded_units
    }
    assert same_effects(effects(run, one), effects(renamed, other))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 6, 8]))
def test_swapping_arms_flips_signs_exactly_on_log_ratios(seed: int, pairs: int) -> None:
    order = ("off", "on", "on", "off") * (pairs // 2)
    noise = synthetic.Noise(block_sd=0.02, drift=0.004, seed=seed)
    run = synthetic.make_run(
        synthetic.screening(order=order, sizes=("8k",), sessions=0, generation=(), concurrency=()), noise
    )
    swapped = replace(run, screening=replace(run.screening, baseline="on"))
    verdict = audit(run)
    for one, other in zip(effects(run, verdict).effects, effects(swapped, verdict).effects, strict=True):
        assert [p.log_ratio for p in one.per_pair] == [-p.log_ratio for p in other.per_pair]
        assert (one.p_value, one.p_plain) == (other.p_value, other.p_plain)
        if one.low_pct is not None:
            assert (1 + one.low_pct / 100) * (1 + other.high_pct / 100) == pytest.approx(1, abs=1e-12)


@settings(max_examples=10, deadline=None)
@given(runs())
def test_one_pass_gives_what_audit_and_effects_give(run: StoredRun) -> None:
    verdict, result = examine(run)
    assert verdict == audit(run)
    assert same_effects(result.table, effects(run, verdict))


def rename(run: StoredRun, called: dict[str, str]) -> StoredRun:
    def rows(block: StoredBlock) -> StoredBlock:
        tables = {}
        for name in ("requests", "warmups"):
            table = getattr(block, name)
            for column in ("arm", "plays"):
                words = pa.array([called[v] for v in table[column].to_pylist()], pa.string())
                table = table.set_column(table.column_names.index(column), column, words)
            tables[name] = table
        new = called[block.arm]
        manifest = {**block.manifest, "arm": new, "plays": called[block.plays]}
        return replace(block, arm=new, plays=called[block.plays], manifest=manifest, **tables)

    declared = run.screening
    arms = tuple(replace(arm, name=called[arm.name]) for arm in declared.arms)
    order = tuple(called[arm] for arm in declared.order)
    screening = replace(declared, arms=arms, order=order, baseline=called[declared.baseline])
    plan = replace(
        run.plan, blocks=tuple(replace(b, arm=called[b.arm], plays=called[b.plays]) for b in run.plan.blocks)
    )
    return replace(run, screening=screening, plan=plan, blocks=tuple(rows(block) for block in run.blocks))
