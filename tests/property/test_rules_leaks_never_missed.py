"""A leak at any one request, or a shortfall in ON at any request that must hit, stops the run: none is missed."""

import tempfile
from pathlib import Path

import pytest
from fake_runs import fake_run
from fake_world import ALL_WORKLOADS, BLOCK, CHUNK, Faults, make_screening
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.model.errors import ExitCode, VoidBlock
from harness.plan import schedule
from harness.rules.expect import expectation

SCREENING = make_screening(workloads=ALL_WORKLOADS)
PLAN = schedule(SCREENING)
REQUESTS = (*PLAN.blocks[0].warmups, *PLAN.blocks[0].requests)
KEYS = [request.key for request in REQUESTS]
FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run_with(faults):
    with tempfile.TemporaryDirectory() as root:
        run = fake_run(Path(root), faults, screening=SCREENING)
        try:
            run.go()
        except VoidBlock as void:
            excluded = list((run.path / "excluded").iterdir())
            return void, [path.name for path in excluded], run.stage
        finally:
            run.setting.folder.release()
    return None, [], run.stage


def must_hit(arm):
    """Keys whose external hits must be above 0 in single-request windows of that arm."""
    payloads = fake_run_payloads()
    return [
        request.key
        for request in REQUESTS
        if request.window is None
        and expectation(
            request, payload=payloads[request.payload_id], engine=SCREENING.engine, reach=SCREENING.arm(arm).reach
        ).external_min
        >= CHUNK
    ]


def fake_run_payloads():
    from fake_world import FakeFixtures  # noqa: PLC0415 - only to read counts

    fixtures = FakeFixtures(PLAN)
    return {payload.payload_id: fixtures.payload(payload.payload_id) for payload in PLAN.payloads}


@FAST
@given(
    key=st.sampled_from(KEYS),
    arm=st.sampled_from(["off", "on"]),
    blocks=st.integers(1, 3),
    where=st.sampled_from(["local", "external"]),
)
def test_a_leak_at_any_request_of_any_arm_stops_with_4_and_archives_the_block(key, arm, blocks, where):
    extra = {key: blocks * (2 * BLOCK if where == "local" else CHUNK)}
    faults = Faults(arms=frozenset({arm}), **{where: extra})
    void, archived, stage = run_with(faults)
    assert void is not None, f"missed: {key} in {arm}"
    assert void.exit_code is ExitCode.LEAK
    assert archived == ["01-off-1" if arm == "off" else "02-on-1"]
    assert stage.stopped == stage.started


@FAST
@given(key=st.sampled_from(must_hit("on")), chunks=st.integers(1, 3))
def test_a_shortfall_of_the_tier_at_any_request_stops_on_with_5(key, chunks):
    void, archived, _ = run_with(Faults(arms=frozenset({"on"}), external={key: -chunks * CHUNK}))
    assert void is not None, f"missed: {key}"
    assert void.exit_code is ExitCode.VOID
    assert archived == ["02-on-1"]


def test_there_are_requests_that_must_hit():
    keys = must_hit("on")
    assert any(key.startswith("chains") for key in keys)
    assert any(key.startswith("sessions") for key in keys)
    assert must_hit("off") == []


def test_a_clean_run_of_the_same_plan_is_not_stopped():
    void, archived, _ = run_with(Faults())
    assert void is None
    assert archived == []


@pytest.mark.parametrize("arm", ["off", "on"])
def test_every_single_key_is_caught_in_turn(arm):
    chosen = KEYS[:: max(1, len(KEYS) // 6)]
    missed = [key for key in chosen if run_with(Faults(arms=frozenset({arm}), local={key: 2 * BLOCK}))[0] is None]
    assert missed == []
