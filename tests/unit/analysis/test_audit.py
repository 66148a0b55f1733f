"""The audit of a stored screening: what passes, and what it catches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import synthetic
from synthetic import edit, make_run, with_block, with_rows

from harness.analysis import audit, effects, exclusion_counts
from harness.model.findings import Finding, Verdict
from harness.model.stored import ExcludedBlock, StoredRun

KEY = "chains/8k/0/cross"


@pytest.fixture(scope="module")
def run() -> StoredRun:
    return make_run()


def rules(verdict: Verdict) -> set[str]:
    return {finding.rule for finding in verdict.findings}


def voids(verdict: Verdict) -> set[str]:
    return {finding.rule for finding in verdict.findings if finding.severity == "void"}


def test_a_clean_screening_is_valid_and_every_row_is_paired(run: StoredRun) -> None:
    verdict = audit(run)
    assert (verdict.status, verdict.findings) == ("valid", ())
    assert verdict.rows == verdict.paired == sum(block.requests.num_rows for block in run.blocks)


def test_the_papers_plan_has_768_rows_all_paired() -> None:
    verdict = audit(make_run(synthetic.paper()))
    assert (verdict.status, verdict.rows, verdict.paired, verdict.excluded) == ("valid", 768, 768, 0)


@pytest.mark.parametrize(
    "order", [("off",) * 4, ("on",) * 8, ("off", "native", "on", "on", "native", "off"), ("on", "off")]
)
def test_other_orders_are_valid_too(order: tuple[str, ...]) -> None:
    verdict = audit(make_run(synthetic.screening(order=order)))
    assert (verdict.status, verdict.excluded) == ("valid", 0)


# --- planted faults: issue 3's list -------------------------------------------------------------------------


def test_an_altered_byte_in_a_fixture_that_the_reader_found_voids_the_screening(run: StoredRun) -> None:
    found = Finding(rule="audit.digest", severity="void", subject="01-off/fixtures/x", detail="other bytes", block=1)
    verdict = audit(replace(run, file_findings=(found,)))
    assert verdict.status == "void"
    assert found in verdict.findings


def test_a_body_whose_digest_differs_between_manifest_and_payloads_is_caught(run: StoredRun) -> None:
    def alter(block):
        files = {name: dict(fact) for name, fact in block.manifest["files"].items()}
        next(iter(files.values()))["sha256"] = "0" * 64
        return replace(block, manifest={**block.manifest, "files": files})

    assert "audit.digest" in voids(audit(with_block(run, 2, alter)))


def test_a_row_whose_digest_is_not_that_of_the_body_is_caught(run: StoredRun) -> None:
    verdict = audit(edit(run, 2, KEY, payload_sha256="0" * 64))
    assert {"audit.digest", "audit.sha_mismatch"} <= voids(verdict)


def test_bodies_changed_alike_in_row_and_payloads_of_one_block_still_differ_from_the_partner(run: StoredRun) -> None:
    def alter(block):
        payloads = {
            pid: {**p, "sha256": "1" * 64} if pid == "p1/chains/8k/0/turn-1" else p for pid, p in block.payloads.items()
        }
        return replace(block, payloads=payloads, manifest={k: v for k, v in block.manifest.items() if k != "files"})

    changed = with_block(run, 2, alter)
    for step in ("cold", "local-1", "local-2", "cross", "receiver-local"):
        changed = edit(changed, 2, f"chains/8k/0/{step}", payload_sha256="1" * 64)
    assert voids(audit(changed)) == {"audit.sha_mismatch"}


def test_a_removed_row_is_caught(run: StoredRun) -> None:
    verdict = audit(with_rows(run, 3, lambda rows: [r for r in rows if r["key"] != KEY]))
    assert "audit.row_missing" in voids(verdict)
    assert verdict.rows == verdict.paired + verdict.excluded == 207


def test_a_duplicated_row_is_caught(run: StoredRun) -> None:
    verdict = audit(with_rows(run, 3, lambda rows: [*rows, rows[3]]))
    assert "audit.duplicate_row" in voids(verdict)
    assert verdict.rows == verdict.paired + verdict.excluded == 209


def test_a_row_of_another_plan_is_caught(run: StoredRun) -> None:
    verdict = audit(with_rows(run, 3, lambda rows: [*rows, rows[3] | {"key": "chains/9k/0/cold"}]))
    assert "audit.row_extra" in voids(verdict)


def test_a_swapped_replica_is_caught(run: StoredRun) -> None:
    assert "audit.replica_mismatch" in voids(audit(edit(run, 2, KEY, replica="A")))


def test_a_replica_swapped_in_both_arms_is_caught_by_the_plan(run: StoredRun) -> None:
    both = edit(edit(run, 1, KEY, replica="A"), 2, KEY, replica="A")
    assert "audit.replica_mismatch" in voids(audit(both))


def test_a_changed_capacity_is_caught(run: StoredRun) -> None:
    def shrink(block):
        return replace(block, manifest={**block.manifest, "capacity": {"A": {"num_gpu_blocks": 1_000}}})

    assert voids(audit(with_block(run, 4, shrink))) == {"capacity.changed"}


def test_a_replaced_block_is_caught_by_the_log_of_manifests(run: StoredRun) -> None:
    verdict = audit(with_block(run, 4, lambda block: replace(block, manifest_sha256="f" * 64)))
    assert voids(verdict) == {"audit.block_replaced"}


def test_a_block_of_another_run_is_caught_although_the_log_names_it(run: StoredRun) -> None:
    def foreign(block):
        return replace(block, manifest={**block.manifest, "run": "20260101-000000"})

    verdict = audit(with_block(run, 4, foreign))
    assert voids(verdict) == {"audit.block_replaced"}
    (found,) = (found for found in verdict.findings if found.rule == "audit.block_replaced")
    assert "20260101-000000" in found.detail


def test_two_folders_for_one_position_are_caught_and_their_rows_counted(run: StoredRun) -> None:
    verdict = audit(replace(run, blocks=(*run.blocks, run.blocks[0])))
    assert "audit.block_replaced" in voids(verdict)
    assert verdict.rows == verdict.paired + verdict.excluded == 260


def test_a_null_key_is_caught(run: StoredRun) -> None:
    verdict = audit(with_rows(run, 1, lambda rows: [rows[0] | {"key": None}, *rows[1:]]))
    assert {"audit.null_key", "audit.row_missing"} <= voids(verdict)


def test_exchanged_arm_labels_in_rows_are_caught(run: StoredRun) -> None:
    swapped = run
    for position, label in ((1, "on"), (2, "off")):
        swapped = with_rows(
            swapped, position, lambda rows, label=label: [r | {"arm": label, "plays": label} for r in rows]
        )
    assert "audit.arm_label" in voids(audit(swapped))


def test_exchanged_folders_are_caught_by_order_and_counters(run: StoredRun) -> None:
    first, second = run.blocks[0], run.blocks[1]
    exchanged = (replace(second, position=1), replace(first, position=2), *run.blocks[2:])
    verdict = audit(replace(run, blocks=exchanged, header={}))
    assert {"audit.arm_label", "leak.external"} <= voids(verdict)


def test_another_declaration_digest_is_caught(run: StoredRun) -> None:
    verdict = audit(with_block(run, 2, lambda b: replace(b, manifest={**b.manifest, "declaration_digest": "0"})))
    assert voids(verdict) == {"audit.settings"}


def test_a_block_that_the_log_committed_but_the_folder_lacks_is_void(run: StoredRun) -> None:
    verdict = audit(replace(run, blocks=run.blocks[:3]))
    assert "audit.file_missing" in voids(verdict)


def test_a_removed_warm_up_is_caught(run: StoredRun) -> None:
    verdict = audit(with_block(run, 2, lambda b: replace(b, warmups=b.warmups.slice(1))))
    assert voids(verdict) == {"audit.row_missing"}


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("role", "local", "audit.plan_mismatch"),
        ("unit", "chains/8k/1", "audit.plan_mismatch"),
        ("time_scale", 0.5, "audit.plan_mismatch"),
        ("payload_id", "p1/chains/8k/1/turn-1", "audit.plan_mismatch"),
        ("check", "none", "audit.plan_mismatch"),
        ("ttft_ns", 1, "audit.derived"),
        ("ttft_ns", None, "audit.derived"),
        ("last_content_ns", 5, "audit.derived"),
        ("expected_external_min", 0, "audit.expectation"),
        ("planned_tokens", 7_992, "audit.derived"),
        ("answer", '{"alpha": 1}', "audit.verdict"),
        ("verdict", "wrong", "audit.verdict"),
        ("verdict", None, "audit.verdict"),
        ("connection_reused", True, "audit.settings"),
        ("rules", ["leak.local"], "leak.local"),
    ],
)
def test_a_column_that_contradicts_its_source_is_caught(run: StoredRun, column: str, value: object, rule: str) -> None:
    assert rule in voids(audit(edit(run, 2, KEY, **{column: value})))


def test_rows_that_ran_in_another_order_than_planned_are_caught(run: StoredRun) -> None:
    def late(rows):
        shift = 10**10
        stamps = [name for name in rows[0] if name.endswith("_ns") and (rows[0][name] or 0) > 10**14]
        return [r | ({n: r[n] + shift for n in stamps if r[n]} if r["key"] == "chains/8k/0/cold" else {}) for r in rows]

    assert "audit.plan_mismatch" in voids(audit(with_rows(run, 1, late)))


# --- rules re-checked from counters --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "key", "changes", "rule"),
    [
        (1, "chains/8k/0/cold", {"local_hits": 16, "cached_tokens": 16, "computed_tokens": 7_977}, "leak.local"),
        (1, KEY, {"external_hits": 256, "external_queries": 7_993}, "leak.external"),
        (2, "chains/8k/0/cold", {"pool_hit_tokens": 256}, "leak.pool_lookup"),
        (
            2,
            KEY,
            {"external_hits": 0, "cached_tokens": 0, "computed_tokens": 7_993, "pool_hit_tokens": 0},
            "treatment.external_short",
        ),
        (2, "chains/8k/0/local-1", {"local_hits": 0}, "treatment.local_short"),
        (2, KEY, {"local_queries": 9_000}, "invariant.queries"),
        (2, KEY, {"prompt_tokens_counted": 9_000}, "invariant.prompt_tokens"),
        (2, KEY, {"computed_tokens": 1}, "invariant.sources"),
        (2, KEY, {"cached_tokens": 1}, "invariant.cached_tokens"),
        (2, KEY, {"preemptions": 1}, "invariant.preemption"),
        (2, KEY, {"external_queries": 2}, "invariant.external_queries"),
        (2, KEY, {"local_queries": None}, "counter.missing"),
        (2, KEY, {"external_hits": None}, "counter.missing"),
        (2, "chains/8k/0/local-1", {"local_hits": 7_983}, "invariant.local_range"),
        (2, KEY, {"pool_evicted_chunks": 1}, "pool.eviction"),
    ],
)
def test_a_counter_rule_is_checked_again(run: StoredRun, position: int, key: str, changes: dict, rule: str) -> None:
    declared = run.screening
    arms = tuple(replace(arm, services=("pool",)) if arm.reach == "all" else arm for arm in declared.arms)
    with_pool = replace(run, screening=replace(declared, arms=arms))
    verdict = audit(edit(with_pool, position, key, **changes))
    assert rule in voids(verdict)
    assert all(unit.unit == "*" for unit in verdict.excluded_units)


def test_met_3_external_queries_above_the_prompt_tokens_void_the_block(run: StoredRun) -> None:
    verdict = audit(edit(run, 2, KEY, external_queries=2 * 7_993))
    assert "invariant.external_queries" in voids(verdict)


def test_met_3_external_queries_that_count_the_whole_prompt_pass_where_the_version_counts_so(run: StoredRun) -> None:
    engine = replace(run.screening.engine, external_queries="n")
    counted = replace(run, screening=replace(run.screening, engine=engine))
    for position in (2, 3):
        counted = with_rows(
            counted,
            position,
            lambda rows: [r | ({} if r["window"] else {"external_queries": r["prompt_tokens"]}) for r in rows],
        )
    assert audit(counted).status == "valid"


def test_window_counters_that_do_not_add_up_are_caught(run: StoredRun) -> None:
    def lose(block):
        rows = block.counters.to_pylist()
        changed = next(r for r in rows if r["counter"] == "local_queries")
        changed["delta"] += 5
        changed["after"] += 5
        return replace(block, counters=type(block.counters).from_pylist(rows, schema=block.counters.schema))

    assert "invariant.queries" in voids(audit(with_block(run, 1, lose)))


def test_counters_that_were_not_loaded_are_said_so_and_nothing_else_changes(run: StoredRun) -> None:
    slim = replace(run, blocks=tuple(replace(block, counters=None) for block in run.blocks))
    verdict = audit(slim)
    assert (verdict.status, rules(verdict)) == ("valid", {"audit.not_rechecked"})


def test_cor_2_an_on_block_without_any_external_hit_is_not_no_effect_but_void(run: StoredRun) -> None:
    def untreated(rows):
        return [
            r | ({"external_hits": 0, "pool_hit_tokens": 0, "pool_loaded_chunks": 0} if not r["window"] else {})
            for r in rows
        ]

    verdict = audit(with_rows(run, 2, untreated))
    assert {"treatment.zero_exposure", "treatment.external_short", "audit.arm_label"} <= voids(verdict)
    assert effects(run, verdict).status == "void"


# --- exclusions ---------------------------------------------------------------------------------------------


def failed(kind: str) -> dict[str, object]:
    stamps = (
        "first_content_ns",
        "last_content_ns",
        "finish_ns",
        "usage_ns",
        "done_ns",
        "ttft_ns",
        "ttft_after_connect_ns",
        "decode_rate",
    )
    return {"ok": False, "failure_kind": kind, "verdict": None, **dict.fromkeys(stamps)}


def test_a_failed_row_takes_its_unit_and_the_partner_unit_along(run: StoredRun) -> None:
    verdict = audit(edit(run, 2, KEY, **failed("timeout")))
    assert verdict.status == "incomplete"
    unit = verdict.excluded_units[0]
    assert (unit.pair, unit.unit, unit.rule, unit.arm, unit.key, unit.rows) == (
        1,
        "chains/8k/0",
        "row.failed",
        "on",
        KEY,
        10,
    )
    assert (verdict.paired, verdict.excluded) == (198, 10)
    cell = effects(run, verdict).find("ttft/8k/cross")
    assert (cell.units, cell.excluded_units) == (3, 1)
    assert (1, "chains/8k/0") not in {(pair, name) for pair, name, _, _ in cell.observations}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"verdict": "wrong", "answer": '{"alpha": 1}'}, "row.wrong"),
        ({"verdict": "unparsable", "answer": "?"}, "row.unparsable"),
        ({"verdict": "drift", "answer": '{"alpha": 1}'}, "row.drift"),
        ({"client_limited": "loop_lag"}, "row.client_limited"),
        ({"sim_missed": 2}, "row.sim_missed"),
    ],
)
def test_a_row_that_is_no_measurement_leaves_by_name(run: StoredRun, changes: dict[str, object], rule: str) -> None:
    verdict = audit(edit(run, 1, KEY, **changes))
    assert verdict.status == "incomplete"
    assert exclusion_counts(verdict) == {rule: {"off": 1}}
    assert rule in rules(verdict)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"client_limited": "late reader: 5.7 ms"}, "(late reader: 5.7 ms)"),
        ({"sim_missed": 2, "sim_max_late_ns": 5_420_742}, "(a chunk left 5.4 ms late)"),
        ({"ok": False, "failure_kind": "timeout"}, "(timeout)"),
    ],
)
def test_the_finding_of_a_row_that_leaves_says_what_disturbed_it(
    run: StoredRun, changes: dict[str, object], cause: str
) -> None:
    details = [found.detail for found in audit(edit(run, 1, KEY, **changes)).findings if found.subject == KEY]
    assert any(cause in detail for detail in details)


@pytest.mark.parametrize(
    ("text", "again"),
    [("[{}]", None), ("[ {} ]", None), ("[{}, 1]", "unparsable"), ('{{"alpha":{}}}', "unparsable"), ("[1{}]", "wrong")],
)
def test_an_answer_asked_for_as_an_array_is_judged_again_as_one(text: str, again: str | None) -> None:
    run = make_run()
    row = next(r for r in run.blocks[1].requests.to_pylist() if r["key"] == KEY)
    for block in run.blocks[:2]:
        fields = block.payloads[row["payload_id"]]
        fields["answer_form"] = "array"
    right = fields["expected"]["alpha"]
    both = edit(edit(run, 1, KEY, answer=f"[{right}]"), 2, KEY, answer=text.format(right))
    found = [f.detail for f in audit(both).findings if (f.rule, f.subject) == ("audit.verdict", KEY) and f.block == 2]
    assert len(found) == bool(again)
    assert all(f"judged again {again}" in detail for detail in found)


def test_cor_1_one_foreign_answer_voids_the_block_and_its_pair(run: StoredRun) -> None:
    other = run.blocks[1].payloads["p1/chains/32k/0/turn-1"]["expected"]["alpha"]
    verdict = audit(edit(run, 2, KEY, verdict="foreign", answer=f'{{"alpha": {other}}}'))
    assert "answer.foreign" in voids(verdict)
    assert verdict.paired == 104
    assert effects(run, verdict).find("ttft/8k/cross").pairs == 1


def test_cor_1_a_foreign_answer_that_was_stored_as_correct_is_found_again(run: StoredRun) -> None:
    other = run.blocks[1].payloads["p1/chains/32k/0/turn-1"]["expected"]["alpha"]
    verdict = audit(edit(run, 2, KEY, answer=f'{{"alpha": {other}}}'))
    assert "audit.verdict" in voids(verdict)


def ten_pairs() -> StoredRun:
    """One block pair with ten matched request pairs: ten sessions of a single turn, so that each is its own unit."""
    declared = synthetic.screening(order=("off", "on"), chains=0, sessions=5, turns=1, generation=(), concurrency=())
    return make_run(declared)


def test_res_3_failures_leave_in_pairs_and_a_short_ttft_stays() -> None:
    run = ten_pairs()
    keys = [request.key for request in run.plan.blocks[0].requests]
    nothing = {
        "first_content_ns": None,
        "last_content_ns": None,
        "ttft_ns": None,
        "ttft_after_connect_ns": None,
        "decode_rate": None,
    }
    spoiled = edit(run, 2, keys[2], **nothing, answer="", verdict="unparsable")
    spoiled = edit(spoiled, 1, keys[6], **failed("timeout"))
    row = next(r for r in run.blocks[0].requests.to_pylist() if r["key"] == keys[0])
    start = row["start_ns"]
    quick = {
        "connect_start_ns": start + 10,
        "connected_ns": start + 20,
        "connect_ns": 10,
        "first_content_ns": start + 400_000,
        "ttft_ns": 400_000,
        "ttft_after_connect_ns": 399_980,
    }
    spoiled = edit(spoiled, 1, keys[0], **quick)
    verdict = audit(spoiled)
    assert verdict.status == "incomplete"
    assert {unit.key for unit in verdict.excluded_units} == {keys[2], keys[6]}
    assert (verdict.paired, verdict.excluded) == (16, 4)
    assert verdict.failures == {"off": {"row.failed": 1}, "on": {"row.unparsable": 1}}
    assert "audit.failure_rates" not in rules(verdict)
    table = effects(spoiled, verdict)
    assert sum(effect.units for effect in table.effects) == 8
    assert min(off for effect in table.effects for _, _, off, _ in effect.observations) > 0


def test_res_3_a_ttft_of_0_4_ms_is_a_measurement() -> None:
    run = make_run()
    rows = run.blocks[0].requests.to_pylist()
    row = next(r for r in rows if r["key"] == "chains/8k/0/local-1")
    start = row["start_ns"]
    quick = {
        "connect_start_ns": start + 10,
        "connected_ns": start + 20,
        "connect_ns": 10,
        "first_content_ns": start + 400_000,
        "ttft_ns": 400_000,
        "ttft_after_connect_ns": 399_980,
    }
    changed = edit(run, 1, "chains/8k/0/local-1", **quick)
    verdict = audit(changed)
    assert verdict.status == "valid"
    observed = [off for _, _, off, _ in effects(changed, verdict).find("ttft/8k/local").observations]
    assert min(observed) == pytest.approx(0.0004)


def test_res_3_unequal_failure_rates_make_the_comparison_inconclusive() -> None:
    run = ten_pairs()
    keys = [request.key for request in run.plan.blocks[0].requests]
    spoiled = edit(edit(run, 2, keys[2], **failed("timeout")), 2, keys[3], **failed("reset"))
    verdict = audit(spoiled)
    uneven = next(f for f in verdict.findings if f.rule == "audit.failure_rates")
    assert "on: 2 of 10 rows" in uneven.detail
    assert "off: 0 of 10" in uneven.detail
    assert "inconclusive" in effects(spoiled, verdict).inconclusive


def test_a_completed_stream_without_content_has_no_ttft_and_leaves(run: StoredRun) -> None:
    key = "generation/8k/512/cold"
    nothing = {"first_content_ns": None, "last_content_ns": None, "ttft_ns": None, "ttft_after_connect_ns": None}
    verdict = audit(edit(run, 1, key, **nothing))
    assert exclusion_counts(verdict) == {"row.no_content": {"off": 1}}


# --- screenings that are not whole --------------------------------------------------------------------------


def test_a_block_without_its_partner_is_unpaired_and_its_rows_are_excluded() -> None:
    verdict = audit(make_run(only=(1, 2, 3)))
    assert verdict.status == "incomplete"
    assert rules(verdict) == {"audit.unpaired"}
    assert (verdict.rows, verdict.paired, verdict.excluded) == (156, 104, 52)
    assert verdict.excluded_units[0].unit == "*"


def test_a_pair_that_has_not_been_run_is_missing_not_void() -> None:
    verdict = audit(make_run(only=(1, 2)))
    assert (verdict.status, rules(verdict)) == ("incomplete", {"audit.block_missing"})
    assert verdict.rows == verdict.paired == 104


def test_an_empty_folder_has_nothing_to_show() -> None:
    run = make_run(only=())
    verdict = audit(run)
    assert (verdict.status, verdict.rows) == ("incomplete", 0)
    assert all(effect.units == 0 for effect in effects(run, verdict).effects)


def test_archived_blocks_are_listed_with_reason_and_fix(run: StoredRun) -> None:
    old = ExcludedBlock(
        position=2, arm="on", path="excluded/02-on-1", reason={"rule": "leak.local", "key": KEY, "fix": "new salt"}
    )
    verdict = audit(replace(run, excluded=(old,), superseded=(replace(old, path="superseded/02-on-1"),)))
    assert verdict.status == "valid"
    assert rules(verdict) == {"run.excluded_block", "run.superseded_block"}
    assert all("new salt" in finding.detail for finding in verdict.findings)


def test_many_findings_of_one_rule_are_counted_not_listed(run: StoredRun) -> None:
    spoiled = run
    for position in (1, 2, 3, 4):
        spoiled = with_rows(spoiled, position, lambda rows: [r | {"max_tokens": 1} for r in rows])
    verdict = audit(spoiled)
    mine = [f for f in verdict.findings if f.rule == "audit.plan_mismatch"]
    assert len(mine) == 101
    assert mine[-1].data["count"] == 208


def test_the_second_pair_alone_as_two_loose_blocks_is_valid(run: StoredRun) -> None:
    plan = replace(run.plan, blocks=run.plan.blocks[2:])
    verdict = audit(replace(run, plan=plan, blocks=run.blocks[2:], header={}))
    assert (verdict.status, verdict.paired, verdict.excluded) == ("valid", 104, 0)


def test_warnings_that_a_run_noted_in_a_manifest_are_shown_and_void_ones_void(run: StoredRun) -> None:
    def note(block, severity):
        found = {
            "rule": "run.gap_exceeded",
            "severity": severity,
            "subject": "drain",
            "detail": "2 s",
            "block": 1,
            "data": {},
        }
        return replace(block, manifest={**block.manifest, "findings": [found]})

    assert audit(with_block(run, 1, lambda block: note(block, "warning"))).status == "valid"
    assert audit(with_block(run, 1, lambda block: note(block, "void"))).status == "void"
