"""One block at a time in the fake world: what stops it, what stays of it, what goes on."""

import orjson
import pyarrow.parquet as pq
import pytest
from fake_world import (
    ALL_WORKLOADS,
    CHAINS,
    NATIVE,
    OFF,
    ON,
    SIZE,
    Faults,
    SessionsSpec,
    WarmupSpec,
    Workloads,
    make_screening,
    planted,
)

from harness.counters.canary import ResetReply
from harness.model.counting import Counter
from harness.model.errors import EngineError, ExitCode, FixtureError, LeakError, VoidBlock
from harness.model.observation import FailureKind
from harness.run.canary import CanaryProbe, canary_findings

COLD, LOCAL, CROSS = "chains/1k/0/cold", "chains/1k/0/local-1", "chains/1k/0/cross"


def rows(run, position=1, arm="off", stem="requests"):
    return {
        row["key"]: row
        for row in pq.read_table(run.path / "blocks" / f"{position:02d}-{arm}" / f"{stem}.parquet").to_pylist()
    }


def archived(run):
    return sorted(path.name for path in (run.path / "excluded").iterdir())


def reason(run):
    path = next((run.path / "excluded").iterdir())
    return orjson.loads((path / "reason.json").read_bytes())


def stopped_by(run, code):
    with pytest.raises(VoidBlock) as caught:
        run.go()
    assert caught.value.exit_code is code
    assert run.stage.stopped == run.stage.started
    assert run.setting.folder.header()["status"] == "void"
    return caught.value


def test_every_workload_and_arm_passes_its_own_rules(make_run):
    order = ("off", "native", "on", "on", "native", "off")
    run = make_run(screening=make_screening(workloads=ALL_WORKLOADS, arms=(OFF, NATIVE, ON), order=order))
    run.go()
    read = run.read()
    assert [block.arm for block in read.blocks] == list(order)
    assert all(row["verdict"] in ("correct", "forced_ok") for row in rows(run).values())
    assert read.file_findings == ()


def test_a_leak_stops_at_once_with_4_and_the_block_is_archived_whole(make_run):
    run = make_run(Faults(local={COLD: 64}))
    error = stopped_by(run, ExitCode.LEAK)
    assert isinstance(error, LeakError)
    assert "cold request chains/1k/0/cold hit 64 local tokens on A" in error.message
    assert archived(run) == ["01-off-1"]
    assert reason(run)["rule"] == "leak.local"
    assert run.stage.live[0].sent[-1].key == COLD
    kept = {path.name for path in (run.path / "excluded" / "01-off-1").iterdir()}
    assert {"requests.parquet", "manifest.json", "reason.json", "logs", "fixtures"} <= kept


def test_the_row_that_leaked_is_in_the_archive_with_its_rule(make_run):
    run = make_run(Faults(local={COLD: 64}))
    stopped_by(run, ExitCode.LEAK)
    stored = pq.read_table(run.path / "excluded" / "01-off-1" / "requests.parquet").to_pylist()
    assert [row["rules"][0] for row in stored if row["rules"]] == ["leak.local"]


@pytest.mark.parametrize(
    ("faults", "rule_id"),
    [
        (Faults(no_transfer=True), "treatment.external_short"),
        (Faults(external={CROSS: -64}, arms=frozenset({"on"})), "treatment.external_short"),
        (Faults(local={LOCAL: -16}), "treatment.local_short"),
        (Faults(not_loaded=True), "treatment.not_loaded"),
        (Faults(usage_offset={LOCAL: 1}), "invariant.planned_tokens"),
        (Faults(stray_queries={LOCAL: 100}), "invariant.idle_replica"),
        (Faults(reset={LOCAL}), "counter.reset"),
        (Faults(hide=frozenset({Counter.LOCAL_HITS})), "counter.missing"),
        (Faults(pool_losses={LOCAL: Counter.POOL_EVICTED_CHUNKS}), "pool.eviction"),
    ],
)
def test_whatever_voids_stops_with_5_and_names_its_rule(make_run, faults, rule_id):
    run = make_run(faults)
    assert stopped_by(run, ExitCode.VOID).rule == rule_id
    assert reason(run)["exit_code"] == 5


def test_a_dead_replica_is_named_before_the_rows_it_spoils(make_run):
    run = make_run(Faults(fail={LOCAL: FailureKind.RESET}, dead={LOCAL}))
    assert stopped_by(run, ExitCode.VOID).rule == "process.died"


def test_a_failed_row_leaves_its_unit_and_the_run_goes_on(make_run):
    run = make_run(Faults(fail={LOCAL: FailureKind.TIMEOUT}, arms=frozenset({"off"})))
    run.go()
    row = rows(run)[LOCAL]
    assert (row["ok"], row["failure_kind"], row["excluded"]) == (False, "timeout", "row.failed")
    assert row["verdict"] is None
    assert len(run.read().blocks) == 2


def test_res_3_a_row_without_content_has_a_null_ttft_never_a_zero(make_run):
    run = make_run(Faults(answers={LOCAL: ""}, arms=frozenset({"off"})), screening=make_screening(answers="none"))
    run.go()
    row = rows(run)[LOCAL]
    assert row["ttft_ns"] is None
    assert row["excluded"] == "row.no_content"


@pytest.mark.parametrize(("text", "verdict"), [('{"v0": 1}', "wrong"), ("gibberish", "unparsable")])
def test_cor_1_a_wrong_answer_is_a_row_not_a_void(make_run, text, verdict):
    run = make_run(Faults(answers={LOCAL: text}, arms=frozenset({"off"})))
    run.go()
    assert rows(run)[LOCAL]["verdict"] == verdict


def test_cor_1_one_foreign_answer_voids_the_block(make_run):
    run = make_run()
    other = next(p for p in run.plan.payloads if p.payload_id == "p1/chains/1k/1")
    values = planted(other.namespace)
    run.stage.faults.answers[CROSS] = f'{{"v0": {values[0]}, "v1": {values[1]}, "v2": {values[2]}}}'
    assert stopped_by(run, ExitCode.VOID).rule == "answer.foreign"


def test_cor_3_a_wrong_answer_after_a_transfer_with_a_right_control_is_suspect(make_run):
    run = make_run(Faults(answers={CROSS: '{"v0": 938624}'}, arms=frozenset({"on"})))
    assert stopped_by(run, ExitCode.VOID).rule == "answer.transfer_suspect"


def test_cor_3_the_same_wrong_answer_on_local_reuse_is_drift(make_run):
    wrong = '{"v0": 938624}'
    run = make_run(Faults(answers={LOCAL: wrong, CROSS: wrong}, arms=frozenset({"on"})))
    run.go()
    assert rows(run, 2, "on")[CROSS]["verdict"] == "drift"


def test_iso_1_a_store_that_ignores_the_salt_is_refused_before_anything_is_measured(make_run):
    run = make_run(Faults(salt_ignored_by_pool=True))
    error = stopped_by(run, ExitCode.VOID)
    assert error.rule == "isolation.salt_ignored"
    assert archived(run) == ["02-on-1"]
    assert all(sent.key.startswith("canary") for sent in run.stage.live[1].sent)


def test_iso_1_a_local_cache_that_ignores_the_salt_is_refused_too(make_run):
    assert stopped_by(make_run(Faults(salt_ignored_locally=True)), ExitCode.VOID).rule == "isolation.salt_ignored"


def test_iso_2_ii_a_canary_served_from_the_tier_voids_whatever_a_reset_claimed():
    assert ResetReply(success=True, status=200, body='{"success":true}').meaning == "claimed"
    warm = CanaryProbe(
        replica="A", namespace="n", prompt_tokens=1100, local_hits=0, external_hits=1024, cached_tokens=1024
    )
    (found,) = canary_findings([warm], block=2)
    assert (found.rule, found.severity) == ("isolation.salt_ignored", "void")
    assert "1,024 external tokens" in found.detail


@pytest.mark.parametrize("salt", ["", None])
def test_iso_1_an_empty_salt_is_no_namespace(make_run, salt):
    run = make_run()
    run.setting.fixtures.change("p1/chains/1k/0", salt=salt)
    with pytest.raises(FixtureError, match="isolates nothing"):
        run.go()
    assert run.stage.started == []


def test_a_salt_shared_by_two_namespaces_is_refused(make_run):
    run = make_run()
    other = run.setting.fixtures.payload("p1/chains/1k/1").salt
    run.setting.fixtures.change("p1/chains/1k/0", salt=other)
    with pytest.raises(FixtureError, match="another namespace"):
        run.go()


def test_canaries_are_the_same_in_both_arms_and_never_in_the_plan(make_run):
    run = make_run()
    run.go()
    bodies = [[s.body for s in live.sent if s.key.startswith("canary")] for live in run.stage.live]
    assert bodies[0] == bodies[1]
    salts = {orjson.loads(body)["cache_salt"] for body in bodies[0]}
    assert len(salts) == 3
    assert salts.isdisjoint(payload.namespace[:32] for payload in run.plan.payloads)


def test_both_arms_are_sent_the_same_bytes_in_the_same_order(make_run):
    run = make_run(screening=make_screening(workloads=ALL_WORKLOADS))
    run.go()
    off, on = ([(s.key, s.replica, s.sha256) for s in live.sent] for live in run.stage.live)
    assert sorted(off) == sorted(on)
    single = [[entry for entry in sent if not entry[0].startswith("concurrency")] for sent in (off, on)]
    assert single[0] == single[1]


def test_a_changed_capacity_voids_the_later_block(make_run):
    run = make_run(Faults(num_blocks=lambda start: 500 - start))
    assert stopped_by(run, ExitCode.VOID).rule == "capacity.changed"
    assert archived(run) == ["02-on-1"]


def test_a_start_that_fails_measures_nothing_and_can_be_resumed(make_run):
    run = make_run(Faults(start_error=2))
    with pytest.raises(EngineError):
        run.go()
    assert run.setting.folder.header()["status"] == "not_started"
    assert [entry.position for entry in run.setting.folder.committed()] == [1]
    assert run.setting.folder.leftovers() == ()


def gapped(gap_s):
    sessions = SessionsSpec(sizes=(SIZE,), placements=("fixed",), sessions=1, turns=3, turn_tokens=150, gap_s=gap_s)
    return make_screening(workloads=Workloads(sessions=sessions, warmup=WarmupSpec(per_replica=1, tokens=200)))


def test_the_idle_gap_between_turns_is_filled_up_to_what_is_declared(make_run):
    run = make_run(Faults(drain_s=0.5), screening=gapped(2.0))
    run.go()
    slept = run.setting.clock.slept
    assert len(slept) == 4
    assert all(1.9 < s <= 2.0 for s in slept[:2])
    assert all(1.4 < s < 1.6 for s in slept[2:])


def test_a_drain_that_outlasts_the_gap_is_flagged_once_a_block(make_run):
    run = make_run(Faults(drain_s=3.0), screening=gapped(2.0))
    run.go()
    noted = [[f for f in block.manifest["findings"] if f["rule"] == "run.gap_exceeded"] for block in run.read().blocks]
    assert [[f["severity"] for f in found] for found in noted] == [[], ["warning"]]
    assert "2 turn(s)" in noted[1][0]["detail"]


def test_progress_names_block_phase_request_hit_state_and_time_left(make_run):
    run = make_run()
    run.go()
    phases = [step.phase for step in run.progress if step.block == 1]
    assert list(dict.fromkeys(phases)) == ["start", "canary", "warm-up", "measure", "stop", "commit"]
    after = [step for step in run.progress if step.key == CROSS and step.ttft_ns]
    assert [step.hit_state for step in after] == ["none", "external"]
    assert run.progress[-1].done == run.progress[-1].total
    assert run.progress[-1].left_s == 0


def test_the_manifest_accounts_for_time_capacity_and_processes(make_run):
    run = make_run()
    run.go()
    manifest = run.read().blocks[0].manifest
    assert manifest["capacity"] == {name: {"block_size": 16, "num_blocks": 500} for name in ("A", "B")}
    assert manifest["rows"]["requests"] == manifest["planned"]["requests"] == 10
    assert manifest["time"]["overhead_ns"] > 0
    assert manifest["fingerprints"]["A"]["pid"] == 101
    assert [seen["hits"] for seen in manifest["canary"]] == [0, 0, 0]


def test_warm_ups_are_stored_apart(make_run):
    run = make_run()
    run.go()
    assert set(rows(run, stem="warmups")) == {"warmup/A/warmup-1", "warmup/B/warmup-1"}
    assert not any(key.startswith("warmup") for key in rows(run))
    block = run.path / "blocks" / "01-off"
    assert len(list((block / "fixtures").iterdir())) == 2
    assert len(list((block / "warmup-fixtures").iterdir())) == 1


def test_chains_are_declared_in_this_world():
    assert CHAINS.chains is not None


def test_recording_late_limits_the_rows_of_sessions_only(make_run, monkeypatch):
    told = []

    def spy(_seen, *, recorded_ns=None):
        told.append(recorded_ns is not None)

    monkeypatch.setattr("harness.run.windows.client_limited", spy)
    run = make_run(screening=make_screening(workloads=ALL_WORKLOADS))
    run.go()
    planned = [request for block in run.plan.blocks for request in (*block.warmups, *block.requests)]
    assert told == [request.workload == "sessions" for request in planned if request.window is None]
    assert any(told)
