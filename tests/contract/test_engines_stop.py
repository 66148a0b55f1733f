"""Ending: PRC-1, cancelled and interrupted teardown, shared memory, device memory, what dies in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from fakes_screening import FAKE, OFF, ON, pool, remote, replica, screening

from harness.engines import DeviceMemory, LaunchEvent, launch, leftovers, ports, shm
from harness.engines.processes import ProcessId, identify, wait_gone
from harness.model.errors import EngineError
from harness.model.screening import Commands


class FakeClock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def gone(pid: int) -> bool:
    identity = identify(pid)
    return identity is None or not identity.alive()


async def test_prc_1_stop_returns_only_when_a_renamed_deaf_grandchild_in_its_own_session_is_gone(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "pid"
    arm = await launch(
        screening(replica("A", "--stubborn-child", str(pid_file)), stop_timeout_s=0.3),
        OFF,
        log_dir=tmp_path,
        project_root=tmp_path,
    )
    grandchild = int(pid_file.read_text())
    (print_,) = arm.fingerprints()
    assert print_.pid is not None
    os.kill(print_.pid, signal.SIGKILL)  # the parent goes first: its port is free at once, its child lives
    identity = identify(print_.pid)
    if identity is not None:
        await wait_gone(identity)
    assert not gone(grandchild)

    report = await arm.stop()

    assert gone(grandchild)
    assert grandchild in {killed.pid for killed in report.killed}


async def test_prc_1_stop_waits_until_device_memory_is_released(tmp_path: Path) -> None:
    clock = FakeClock()
    memory = DeviceMemory(
        probe=lambda: {"gpu0": 70 * 2**30 if clock.now < 3.0 else 2**20},
        threshold_bytes=512 * 2**20,
        clock=clock,
        sleep=clock.sleep,
    )
    arm = await launch(screening(replica("A")), OFF, log_dir=tmp_path, project_root=tmp_path, device_memory=memory)
    report = await arm.stop()
    assert report.memory_wait_s == pytest.approx(3.0, abs=memory.interval_s)


async def test_prc_1_memory_that_is_never_released_aborts_naming_the_pids(tmp_path: Path) -> None:
    clock = FakeClock()
    memory = DeviceMemory(
        probe=lambda: {"gpu0": 70 * 2**30}, threshold_bytes=0, timeout_s=5.0, clock=clock, sleep=clock.sleep
    )
    arm = await launch(screening(replica("A")), OFF, log_dir=tmp_path, project_root=tmp_path, device_memory=memory)
    pid = arm.fingerprints()[0].pid
    with pytest.raises(EngineError, match=f"{pid}.*gpu0: 71680 MiB") as caught:
        await arm.stop()
    assert caught.value.phase == "device_memory"


async def test_prc_1_only_started_processes_are_ended(tmp_path: Path) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "3600")
    try:
        arm = await launch(screening(replica("A")), OFF, log_dir=tmp_path, project_root=tmp_path)
        await arm.stop()
        assert bystander.returncode is None
    finally:
        bystander.kill()
        await bystander.wait()


async def test_server_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    arm = await launch(
        screening(replica("A", "--ignore-sigterm"), stop_timeout_s=0.2), OFF, log_dir=tmp_path, project_root=tmp_path
    )
    pid = arm.fingerprints()[0].pid
    report = await arm.stop()
    assert [identity.pid for identity in report.killed] == [pid]
    assert report.exit_codes == {"A": -signal.SIGKILL}


async def test_second_stop_returns_the_report_of_the_first(tmp_path: Path) -> None:
    arm = await launch(screening(replica("A")), OFF, log_dir=tmp_path, project_root=tmp_path)
    first, second = await asyncio.gather(arm.stop(), arm.stop())
    assert first is second
    assert first.exit_codes == {"A": -signal.SIGTERM}


async def test_cancelled_task_still_finishes_its_teardown(tmp_path: Path) -> None:
    arm = await launch(
        screening(replica("A", "--ignore-sigterm"), stop_timeout_s=0.3), OFF, log_dir=tmp_path, project_root=tmp_path
    )
    pid = arm.fingerprints()[0].pid
    assert pid is not None
    stopping = asyncio.ensure_future(arm.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert gone(pid)


async def test_cancelled_launch_leaves_no_process(tmp_path: Path) -> None:
    spawned = asyncio.Event()
    launching = asyncio.ensure_future(
        launch(
            screening(replica("A", "--never-listen"), replica("B")),
            OFF,
            log_dir=tmp_path,
            project_root=tmp_path,
            on_event=lambda event: spawned.set() if event.phase == "ready" else None,
        )
    )
    await spawned.wait()
    pids = [child.pid for child in psutil.Process().children(recursive=True)]
    assert pids
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    assert all(gone(pid) for pid in pids)


DRIVER = """
import asyncio, signal, sys
from contextlib import suppress
from pathlib import Path
sys.path.insert(0, {here!r})
from fakes_screening import FAKE, OFF, replica, screening
from harness.engines import launch

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that put the tests in the background ignores it


async def main():
    task = asyncio.current_task()
    for number in (signal.SIGTERM, *([signal.SIGINT] if {sigint} else [])):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    folder = Path({folder!r})
    stubborn = replica("A", "--stubborn-child", str(folder / "pid"))
    declared = screening(stubborn, replica("B"), stop_timeout_s=0.3)
    arm = await launch(declared, OFF, log_dir=folder, project_root=folder)
    try:
        print("up", *sorted(arm.pids), flush=True)
        await asyncio.Event().wait()
    finally:
        await arm.stop()

asyncio.run(main())
"""


async def interrupted(folder: Path, number: signal.Signals, *, handler: bool) -> list[int]:
    """Run a harness in a process of its own, signal it when its replicas are up, return the pids it had."""
    code = DRIVER.format(here=str(Path(__file__).parent), folder=str(folder), sigint=handler)
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert driver.stdout is not None
    line = (await driver.stdout.readline()).decode().split()
    assert line[0] == "up"
    driver.send_signal(number)
    await driver.communicate()
    return [int(pid) for pid in line[1:]]


@pytest.mark.parametrize(("number", "handler"), [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGINT, False)])
async def test_interrupted_harness_leaves_no_process(tmp_path: Path, number: signal.Signals, handler: bool) -> None:
    pids = await interrupted(tmp_path, number, handler=handler)
    assert len(pids) == 3
    assert [pid for pid in pids if not gone(pid)] == []


async def test_processes_of_a_killed_harness_are_found_and_ended_by_the_next_one(tmp_path: Path) -> None:
    pids = await interrupted(tmp_path, signal.SIGKILL, handler=True)
    (leftover,) = leftovers.find(tmp_path)
    assert {identity.pid for identity in leftover.living} == set(pids)

    ended, _ = await leftovers.end_all(tmp_path, grace_s=0.3)

    assert {identity.pid for identity in ended} == set(pids)
    assert all(gone(pid) for pid in pids)
    assert leftovers.find(tmp_path) == []


def write_record(folder: Path, identity: ProcessId, *, boot: str) -> None:
    pair = [identity.pid, identity.start_ticks]
    content = {"boot": boot, "run_id": "nobody", "harness": [], "processes": [pair]}
    (folder / "processes.json").write_text(json.dumps(content))


async def test_recorded_pid_that_now_belongs_to_somebody_else_is_left_alone(tmp_path: Path) -> None:
    own = identify(os.getpid())
    assert own is not None
    write_record(tmp_path, ProcessId(own.pid, own.start_ticks + 1), boot=leftovers.boot_id())
    ended, _ = await leftovers.end_all(tmp_path)
    assert ended == frozenset()


async def test_record_of_another_boot_names_nobody(tmp_path: Path) -> None:
    own = identify(os.getpid())
    assert own is not None
    write_record(tmp_path, own, boot="another")
    assert [leftover.living for leftover in leftovers.find(tmp_path)] == [frozenset()]


async def test_processes_of_a_harness_that_lives_are_its_own_business(tmp_path: Path) -> None:
    arm = await launch(screening(replica("A")), OFF, log_dir=tmp_path, project_root=tmp_path)
    try:
        assert (tmp_path / "processes.json").exists()
        assert leftovers.find(tmp_path) == []
        assert await leftovers.end_all(tmp_path) == (frozenset(), ())
        assert arm.health_findings() == []
    finally:
        await arm.stop()


async def test_listener_that_fails_does_not_keep_the_teardown_from_ending_processes(tmp_path: Path) -> None:
    def on_event(event: LaunchEvent) -> None:
        if event.phase == "stopping":
            raise RuntimeError("display broke")

    declared = screening(replica("A"), replica("B"))
    arm = await launch(declared, OFF, log_dir=tmp_path, project_root=tmp_path, on_event=on_event)
    pids = arm.pids
    with pytest.raises(RuntimeError, match="display broke"):
        await arm.stop()
    assert all(gone(pid) for pid in pids)


async def test_shared_memory_of_dead_own_processes_is_removed_and_reported(tmp_path: Path) -> None:
    names = tmp_path / "names"
    arm = await launch(screening(replica("A", "--shm", str(names))), OFF, log_dir=tmp_path, project_root=tmp_path)
    named, mapped = names.read_text().split()
    assert {named, mapped} <= shm.present()
    report = await arm.stop()
    assert not {named, mapped} & shm.present()
    assert {segment.name for segment in report.shm_removed} == {named, mapped}


async def test_death_of_a_replica_is_a_finding_once_with_its_log(tmp_path: Path) -> None:
    arm = await launch(
        screening(replica("A", "--say", "hello"), replica("B")), OFF, log_dir=tmp_path, project_root=tmp_path
    )
    try:
        assert arm.health_findings() == []
        pid = {item.name: item.pid for item in arm.fingerprints()}["A"]
        assert pid is not None
        identity = identify(pid)
        os.kill(pid, signal.SIGKILL)
        assert identity is not None
        await wait_gone(identity)
        (finding,) = arm.health_findings()
        assert (finding.rule, finding.subject, finding.severity) == ("process.died", "A", "void")
        assert finding.data["log_tail"] == "hello\n"
        assert arm.health_findings() == []
    finally:
        await arm.stop()


async def test_death_of_the_engine_process_behind_a_living_server_is_a_finding(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    arm = await launch(
        screening(replica("A", "--stubborn-child", str(pid_file))), OFF, log_dir=tmp_path, project_root=tmp_path
    )
    try:
        engine = identify(int(pid_file.read_text()))
        assert engine is not None
        engine.send(signal.SIGKILL)
        await wait_gone(engine)
        (finding,) = arm.health_findings()
        assert finding.rule == "process.died"
        assert str(engine.pid) in finding.detail
    finally:
        await arm.stop()


async def test_voiding_log_line_is_a_finding_with_the_line(tmp_path: Path) -> None:
    declared = screening(
        replica("A", "--say", "WARNING compiled extension not found, using fallback"),
        patterns=("compiled extension not found",),
    )
    arm = await launch(declared, OFF, log_dir=tmp_path, project_root=tmp_path)
    try:
        (finding,) = arm.health_findings()
        assert finding.rule == "process.log_pattern"
        assert finding.detail == "WARNING compiled extension not found, using fallback"
        assert arm.health_findings() == []
    finally:
        await arm.stop()


async def test_service_dies_is_a_finding_too(tmp_path: Path) -> None:
    arm = await launch(screening(replica("A"), services=(pool(),)), ON, log_dir=tmp_path, project_root=tmp_path)
    try:
        pid = {item.name: item.pid for item in arm.fingerprints()}["pool"]
        assert pid is not None
        identity = identify(pid)
        assert identity is not None
        identity.send(signal.SIGKILL)
        await wait_gone(identity)
        assert [(f.rule, f.subject) for f in arm.health_findings()] == [("process.died", "pool")]
    finally:
        await arm.stop()


async def test_second_server_that_joins_the_port_is_found_by_the_thorough_look(tmp_path: Path) -> None:
    arm = await launch(screening(replica("A", "--reuse-port")), OFF, log_dir=tmp_path, project_root=tmp_path)
    try:
        with socket.socket() as intruder:
            intruder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            intruder.bind(("127.0.0.1", int(arm.replicas["A"].rpartition(":")[2])))
            intruder.listen()
            assert [finding.rule for finding in arm.health_findings(thorough=True)] == ["process.changed"]
    finally:
        await arm.stop()


async def test_server_that_closed_its_port_is_found_by_the_quick_look(tmp_path: Path) -> None:
    arm = await launch(screening(replica("A")), OFF, log_dir=tmp_path, project_root=tmp_path)
    try:
        pid = arm.fingerprints()[0].pid
        assert pid is not None
        assert arm.health_findings() == []
        reader, writer = await asyncio.open_connection("127.0.0.1", int(arm.replicas["A"].rpartition(":")[2]))
        os.kill(pid, signal.SIGUSR1)  # the fake closes its listener, then its connections, and lives on
        with suppress(ConnectionResetError):  # not yet accepted: the end comes as a reset
            await reader.read()
        writer.close()
        assert [finding.rule for finding in arm.health_findings()] == ["process.died"]
    finally:
        await arm.stop()


def daemon_commands(folder: Path, port: int, *extra: str) -> Commands:
    """Start / stop / status of a daemon, as another host's scripts would do it."""
    pid_file = str(folder / "daemon.pid")
    start = f"""
import subprocess, sys
argv = [sys.executable, {str(FAKE)!r}, "--port", "{port}", *{list(extra)!r}]
child = subprocess.Popen(argv, start_new_session=True)
open({pid_file!r}, "w").write(str(child.pid))
"""
    stop = f"import os; os.kill(int(open({pid_file!r}).read()), 15); os.remove({pid_file!r})"
    status = f"import os, sys; sys.exit(not os.path.exists({pid_file!r}))"
    return Commands(
        start=(sys.executable, "-c", start), stop=(sys.executable, "-c", stop), status=(sys.executable, "-c", status)
    )


async def test_replica_behind_commands_is_started_checked_and_stopped(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    declared = screening(remote("A", f"http://127.0.0.1:{port}", daemon_commands(tmp_path, port)))
    arm = await launch(declared, OFF, log_dir=tmp_path, project_root=tmp_path)
    (print_,) = arm.fingerprints()
    assert (print_.managed, print_.model, print_.pid, print_.env) == (True, "fake", None, None)
    daemon = int((tmp_path / "daemon.pid").read_text())
    await arm.stop()
    assert gone(daemon)


async def test_remote_replica_that_is_up_already_is_refused_and_not_stopped(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    (tmp_path / "daemon.pid").write_text("0")
    declared = screening(remote("A", f"http://127.0.0.1:{port}", daemon_commands(tmp_path, port)))
    with pytest.raises(EngineError) as caught:
        await launch(declared, OFF, log_dir=tmp_path, project_root=tmp_path)
    assert caught.value.phase == "already_running"
    assert (tmp_path / "daemon.pid").exists()


async def test_start_command_that_fails_is_reported_with_its_output(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    commands = Commands(start=("sh", "-c", "echo no such host; exit 255"), stop=("true",), status=("false",))
    with pytest.raises(EngineError) as caught:
        await launch(
            screening(remote("A", f"http://127.0.0.1:{port}", commands)), OFF, log_dir=tmp_path, project_root=tmp_path
        )
    assert (caught.value.phase, caught.value.process_exit) == ("start_command", 255)
    assert "no such host" in (caught.value.log_tail or "")


async def test_start_command_past_its_time_out_is_ended(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    commands = Commands(start=("sleep", "3600"), stop=("true",), status=("false",))
    declared = screening(remote("A", f"http://127.0.0.1:{port}", commands), start_timeout_s=0.2)
    with pytest.raises(EngineError, match="did not end within") as caught:
        await launch(declared, OFF, log_dir=tmp_path, project_root=tmp_path)
    assert caught.value.phase == "start_command"
    assert [child.name() for child in psutil.Process().children() if child.name() == "sleep"] == []


async def test_stop_command_that_does_not_stop_is_an_error(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    commands = daemon_commands(tmp_path, port)
    commands = Commands(start=commands.start, stop=("true",), status=commands.status)
    arm = await launch(
        screening(remote("A", f"http://127.0.0.1:{port}", commands)), OFF, log_dir=tmp_path, project_root=tmp_path
    )
    daemon = int((tmp_path / "daemon.pid").read_text())
    with pytest.raises(EngineError, match="still exits 0") as caught:
        await arm.stop()
    assert caught.value.phase == "stop"
    assert gone(daemon)  # it was started from here and carries our mark
