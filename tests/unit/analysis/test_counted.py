"""The counters table as arrays says what its rows, read one by one, say."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_rows import table

from harness.analysis.counted import StoredCounters
from harness.analysis.grid import Layout
from harness.model.counting import Counter, CounterDelta, Increase, Missing, Reset
from harness.model.rows import COUNTERS
from harness.rules.facts import required

DECLARED = synthetic.screening(sizes=("8k",), chains=1, sessions=1, generation=(), concurrency=(4,))
PLAN = synthetic.plan(DECLARED)
LAYOUT = Layout(PLAN)
REPLICAS = ("A", "B")
WORK = (Counter.LOCAL_QUERIES, Counter.PROMPT_TOKENS, Counter.GENERATED_TOKENS)
LOSSES = (
    Counter.PREEMPTIONS,
    Counter.POOL_EVICTED_CHUNKS,
    Counter.POOL_ALLOCATION_FAILURES,
    Counter.POOL_DROPPED_EVENTS,
)
SINGLE = [request for request in PLAN.blocks[0].requests if request.window is None][:4]
WINDOW = next(request.window for request in PLAN.blocks[0].requests if request.window is not None)

value = st.one_of(st.none(), st.integers(0, 3).map(float))
row = st.fixed_dictionaries(
    {
        "key": st.sampled_from([*(request.key for request in SINGLE), WINDOW, "nobody"]),
        "target": st.sampled_from([*REPLICAS, "pool"]),
        "counter": st.sampled_from([*map(str, Counter), "a_later_version_counts_this"]),
        "before": value,
        "after": value,
        "status": st.sampled_from(["increase", "reset", "missing"]),
        "reason": st.none(),
    }
)


def stored(rows: list[dict[str, object]]) -> StoredCounters:
    columns = {column.name: [one.get(column.name) for one in rows] for column in COUNTERS}
    return StoredCounters(table(columns, COUNTERS, len(rows)), LAYOUT)


def one_by_one(rows: list[dict[str, object]]) -> dict[str, dict[str, dict[Counter, CounterDelta]]]:
    out: dict[str, dict[str, dict[Counter, CounterDelta]]] = {}
    for one in rows:
        if one["counter"] in [str(counter) for counter in Counter]:
            mine = out.setdefault(str(one["key"]), {}).setdefault(str(one["target"]), {})
            mine[Counter(str(one["counter"]))] = change(one)
    return out


def change(one: dict[str, object]) -> CounterDelta:
    before, after = one["before"], one["after"]
    if one["status"] == "missing" or not isinstance(before, float) or not isinstance(after, float):
        return Missing(reason="not exposed")
    return Reset(before=before, after=after) if one["status"] == "reset" else Increase(before=before, after=after)


def suspicious(deltas: dict[str, dict[Counter, CounterDelta]], addressed: str, needed: tuple[Counter, ...]) -> bool:
    for target, mine in deltas.items():
        busy = WORK if target in REPLICAS and target != addressed else ()
        if any(isinstance(delta, Reset) for delta in mine.values()):
            return True
        if any(isinstance(d := mine.get(c), Increase) and d.delta for c in (*busy, *LOSSES)):
            return True
    return any(not isinstance(deltas.get(r, {}).get(c), Increase | Reset) for r in REPLICAS for c in needed)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(row, max_size=40))
def test_windows_and_pools_are_those_of_the_rows(rows: list[dict[str, object]]) -> None:
    counted, expected = stored(rows), one_by_one(rows)
    for key in (*(request.key for request in SINGLE), WINDOW, "nobody", "never read"):
        assert counted.has(key) == (key in expected)
        assert counted.window(key).deltas == expected.get(key, {})
        assert counted.pools(key, REPLICAS) == tuple(t for t in expected.get(key, {}) if t not in REPLICAS)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(row, max_size=40), block=st.sampled_from(PLAN.blocks[:2]))
def test_suspects_are_those_of_the_rows(rows: list[dict[str, object]], block: object) -> None:
    needed = required(DECLARED.engine, DECLARED.arm(block.arm))
    expected = one_by_one(rows)
    wanted = {r.key for r in SINGLE if r.key in expected and suspicious(expected[r.key], r.replica, needed)}
    assert stored(rows).suspects(block, DECLARED) == wanted


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(row, max_size=40), counter=st.sampled_from(list(Counter)))
def test_increments_at_the_addressed_replica_are_those_of_the_rows(
    rows: list[dict[str, object]], counter: Counter
) -> None:
    counted, expected = stored(rows), one_by_one(rows)
    addressed = np.array([request.replica for request in LAYOUT.requests], dtype=object)
    told, known = counted.at(addressed, counter)
    for request in SINGLE:
        k = LAYOUT.index[request.key]
        delta = expected.get(request.key, {}).get(request.replica, {}).get(counter)
        assert (int(told[k]) if known[k] else None) == (delta.delta if isinstance(delta, Increase) else None)


@pytest.mark.parametrize("rows", [[], [{"key": None, "target": "A", "counter": "requests", "status": "increase"}]])
def test_a_table_that_says_nothing_of_any_request_has_no_suspects(rows: list[dict[str, object]]) -> None:
    assert stored(rows).suspects(PLAN.blocks[0], DECLARED) == set()
