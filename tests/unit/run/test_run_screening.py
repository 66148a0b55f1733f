"""A screening as a whole: interruption, resumption, deadline."""

import asyncio
import os
import signal

import orjson
import pytest
from fake_runs import fake_run
from fake_world import CHAINS, Faults, make_screening

from harness.model.errors import ConfigError, DeadlineError, EngineError, InterruptedRun, LeakError
from harness.run.interrupts import interruptible
from harness.run.resuming import refuse_unless_resumable, remaining, supersede_half_pairs
from harness.run.screening import run_screening
from harness.store import RunFolder

ABBA = ("off", "on", "on", "off")


def interrupted_at(key, number, block_arm="on"):
    """Sends this process a signal when that request goes out."""
    seen = []

    def on_send(arm, sent):
        if arm == block_arm and sent == key and not seen:
            seen.append(key)
            os.kill(os.getpid(), number)

    return Faults(on_send=on_send)


async def guarded(run):
    async with interruptible():
        await run_screening(run.setting, run.plan.blocks)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_tears_everything_down_and_ends_with_6(make_run, number):
    run = make_run(interrupted_at("canary/1", number), screening=make_screening(order=ABBA))
    with pytest.raises(InterruptedRun) as caught:
        asyncio.run(guarded(run))
    assert caught.value.exit_code == 6
    assert run.stage.stopped == run.stage.started == ["off", "on"]
    assert run.setting.folder.header()["status"] == "interrupted"
    assert [entry.position for entry in run.setting.folder.committed()] == [1]


def test_a_second_signal_does_not_disturb_the_teardown(make_run):
    run = make_run(interrupted_at("canary/1", signal.SIGINT, "off"))
    ended = run.stage.stopped.append

    class Slow(list):
        def append(self, arm):
            os.kill(os.getpid(), signal.SIGINT)
            ended(arm)

    run.stage.stopped = Slow()
    with pytest.raises(InterruptedRun):
        asyncio.run(guarded(run))


def resumed(run, tmp_path):
    again = RunFolder.open(run.path)
    again.lock()
    refuse_unless_resumable(again, run.screening.digest)
    fresh = fake_run(tmp_path, screening=run.screening, folder=again)
    moved = supersede_half_pairs(again, run.plan, "now")
    left = remaining(again, run.plan)
    asyncio.run(run_screening(fresh.setting, left))
    return fresh, moved, left


def test_res_2_resume_supersedes_the_half_done_pair_and_reruns_it_whole(make_run, tmp_path):
    run = make_run(interrupted_at("canary/1", signal.SIGTERM), screening=make_screening(order=ABBA))
    with pytest.raises(InterruptedRun):
        asyncio.run(guarded(run))
    run.setting.folder.release()
    fresh, moved, left = resumed(run, tmp_path)
    assert moved == ["01-off-1", "02-on-1"]
    assert [block.position for block in left] == [1, 2, 3, 4]
    read = fresh.read()
    assert [block.position for block in read.blocks] == [1, 2, 3, 4]
    assert [(old.position, old.reason["rule"]) for old in read.superseded] == [
        (1, "run.superseded_block"),
        (2, "run.superseded_block"),
    ]
    assert read.file_findings == ()
    fresh.setting.folder.release()


def test_resume_keeps_finished_pairs(make_run, tmp_path):
    run = make_run(Faults(start_error=4), screening=make_screening(order=ABBA))
    with pytest.raises(EngineError):
        run.go()
    run.setting.folder.release()
    fresh, moved, left = resumed(run, tmp_path)
    assert moved == ["03-on-1"]
    assert [block.position for block in left] == [3, 4]
    assert [block.position for block in fresh.read().blocks] == [1, 2, 3, 4]
    fresh.setting.folder.release()


def test_a_screening_driven_block_by_block_keeps_its_open_pair(make_run):
    run = make_run(screening=make_screening(order=ABBA))
    asyncio.run(run_screening(run.setting, run.plan.blocks[:1], last="open"))
    folder = run.setting.folder
    assert folder.header()["status"] == "open"
    assert supersede_half_pairs(folder, run.plan, "now", keep_open_pair=True) == []
    assert [block.position for block in remaining(folder, run.plan)] == [2, 3, 4]


def test_a_voided_run_cannot_be_resumed_and_says_what_to_do(make_run):
    run = make_run(Faults(local={"chains/1k/0/cold": 64}))
    with pytest.raises(LeakError):
        run.go()
    with pytest.raises(ConfigError, match="--follows"):
        refuse_unless_resumable(run.setting.folder, run.screening.digest)


def test_a_run_of_another_declaration_cannot_be_resumed(make_run):
    with pytest.raises(ConfigError, match="has changed"):
        refuse_unless_resumable(make_run().setting.folder, "another digest")


def test_a_finished_run_cannot_be_resumed(make_run):
    run = make_run()
    run.go()
    with pytest.raises(ConfigError, match="complete"):
        refuse_unless_resumable(run.setting.folder, run.screening.digest)


def test_the_deadline_is_checked_between_blocks_and_ends_with_8(make_run):
    run = make_run(screening=make_screening(order=ABBA, deadline_s=0.5))
    clock = run.setting.clock
    run.stage.faults.on_send = lambda _arm, _key: setattr(clock, "ns", clock.ns + 100_000_000)
    with pytest.raises(DeadlineError) as caught:
        run.go()
    assert caught.value.exit_code == 8
    assert "block 2 was not begun" in caught.value.message
    assert run.setting.folder.header()["status"] == "deadline"
    assert [entry.position for entry in run.setting.folder.committed()] == [1]


def test_the_header_says_how_the_run_ended(make_run):
    run = make_run()
    run.go()
    header = orjson.loads((run.path / "run.json").read_bytes())
    assert header["status"] == "complete"
    assert header["ended_utc"]


def test_an_a_a_screening_runs_one_arm_and_plays_two(make_run):
    run = make_run(screening=make_screening(order=("off",) * 4, workloads=CHAINS))
    run.go()
    assert [(block.arm, block.plays) for block in run.read().blocks] == [
        ("off", "off"),
        ("off", "on"),
        ("off", "on"),
        ("off", "off"),
    ]
