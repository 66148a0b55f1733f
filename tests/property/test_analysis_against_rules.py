"""The array forms in analysis agree with the rules that the runner applies one request at a time."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))

import synthetic

from harness.analysis.audit import COLUMNS
from harness.analysis.bodies import BOUNDS, Bodies
from harness.analysis.expected import expected_bounds, shared_prefixes
from harness.analysis.grid import Layout, grids
from harness.analysis.rebuild import request_window
from harness.analysis.recheck import suspects
from harness.model.stored import StoredRun
from harness.rules.check import check_window
from harness.rules.expect import expectation

NUMBERS = ("prompt_tokens", "local_queries", "local_hits", "external_queries", "external_hits", "prompt_tokens_counted",
           "computed_tokens", "preemptions", "pool_hit_tokens", "pool_loaded_chunks", "pool_evicted_chunks",
           "cached_tokens")  # fmt: skip


@cache
def run_of(order: tuple[str, ...], *, hybrid: bool, queries: str, services: bool) -> StoredRun:
    declared = synthetic.screening(order=order, sizes=("8k",), sessions=1, generation=(), concurrency=())
    run = synthetic.make_run(declared)
    engine = replace(declared.engine, hybrid=hybrid, external_queries=queries)
    arms = tuple(replace(arm, services=("pool",) if services and arm.reach != "none" else ()) for arm in declared.arms)
    blocks = tuple(replace(block, counters=None) for block in run.blocks)
    return replace(run, screening=replace(declared, engine=engine, arms=arms), blocks=blocks)


@settings(max_examples=150, deadline=None)
@given(
    order=st.sampled_from([("off", "on"), ("on", "off"), ("off", "native")]),
    hybrid=st.booleans(),
    queries=st.sampled_from(["n", "n_minus_local"]),
    services=st.booleans(),
    changes=st.lists(
        st.tuples(
            st.integers(0, 15),
            st.one_of(
                st.tuples(
                    st.sampled_from(NUMBERS),
                    st.one_of(st.none(), st.sampled_from([0, 1, 16, 255, 256, 7_936, 7_984, 7_993, 9_000])),
                ),
                st.tuples(st.just("ok"), st.just(value=False)),
            ),
        ),
        max_size=6,
    ),
)
def test_the_arrays_suspect_exactly_the_rows_in_which_a_rule_finds_something(
    order: tuple[str, ...], hybrid: bool, queries: str, services: bool, changes: list
) -> None:
    run = run_of(order, hybrid=hybrid, queries=queries, services=services)
    for index, (column, value) in changes:
        position = 1 + index % 2
        key = run.plan.blocks[0].requests[index % len(run.plan.blocks[0].requests)].key
        run = synthetic.edit(run, position, key, **{column: value})
    grid = next(grids(run, Layout(run.plan), COLUMNS))
    bodies, planned = Bodies(run, grid.layout), list(run.plan.blocks)
    bounds = np.stack([grid.ints(name).values for name in BOUNDS])
    flagged = suspects(grid, planned, run.screening, bounds)
    for i in range(len(planned)):
        for k in range(len(grid.layout.keys)):
            window = request_window(
                grid, i, k, plan=planned[i], screening=run.screening, bodies=bodies, stored=None, bounds=bounds[:, i, k]
            )
            found = check_window(window)
            assert flagged[i, k] == bool(found), (grid.layout.keys[k], found)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_expected_hits_as_arrays_equal_those_of_the_rules(data: st.DataObject) -> None:
    base = synthetic.screening(sizes=("8k",), sessions=1, turns=4, generation=("8k",), concurrency=())
    engine = replace(
        base.engine,
        block_size=data.draw(st.sampled_from([1, 16, 32, 1_568])),
        chunk_size=data.draw(st.sampled_from([None, 256, 1_568])),
        hybrid=data.draw(st.booleans()),
    )
    reach = data.draw(st.sampled_from(["none", "replica", "all"]))
    plan = synthetic.plan(base)
    block, layout = plan.blocks[0], Layout(plan)
    by_payload = {request.payload_id: request for request in block.requests}
    built = {}
    for pid, request in by_payload.items():
        payload = synthetic.payload(request, by_payload)
        n = data.draw(st.integers(1, 40_000))
        lcp = {p: data.draw(st.integers(0, n)) for p in {pid, *payload.lcp}}
        answered = {p: data.draw(st.integers(v, n)) for p, v in lcp.items()}
        built[pid] = replace(payload, prompt_tokens=n, lcp=lcp, lcp_with_answer=answered)
    fields = {pid: synthetic.payload_fields(payload) for pid, payload in built.items()}
    found = expected_bounds(shared_prefixes(block.requests, fields, layout), engine, reach)
    for request in block.requests:
        wanted = expectation(request, payload=built[request.payload_id], engine=engine, reach=reach)
        k = layout.index[request.key]
        assert tuple(found[:, k]) == (wanted.local_min, wanted.local_max, wanted.external_min, wanted.external_max)
