"""The small parts of starting and ending, each alone."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engines import fingerprint, placeholders, ports, shm
from harness.engines.command import Command
from harness.engines.device_memory import DeviceMemory, wait_released
from harness.engines.fingerprint import ProcessFingerprint
from harness.engines.hash_agreement import check_hashes
from harness.engines.logwatch import MAX_LINE_BYTES, LogWatch
from harness.engines.processes import ProcessId, identify, wait_gone
from harness.engines.shielding import finish_despite_cancellation
from harness.model.errors import EngineError, Issue

GOLDEN = Path(__file__).parents[2] / "golden/captures"


# --- placeholders


def test_json_keeps_its_braces() -> None:
    issues: list[Issue] = []
    text = '{"a":{"port":{port}},"b":{}}'
    assert placeholders.expand(text, {"port": "7"}, path="x", issues=issues) == '{"a":{"port":7},"b":{}}'
    assert issues == []


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True), st.text(), max_size=4), st.text())
def test_expanding_a_text_without_braces_changes_nothing(values: dict[str, str], text: str) -> None:
    plain = text.replace("{", "(")
    assert placeholders.expand(plain, values, path="x", issues=[]) == plain


@given(st.from_regex(r"[a-z][a-z_]{0,9}", fullmatch=True))
def test_unknown_placeholder_is_an_issue_and_stays(name: str) -> None:
    issues: list[Issue] = []
    assert placeholders.expand(f"{{{name}}}", {}, path="argv[3]", issues=issues) == f"{{{name}}}"
    assert [issue.path for issue in issues] == ["argv[3]"]


def test_values_are_not_expanded_again() -> None:
    assert placeholders.expand("{a}", {"a": "{b}", "b": "x"}, path="x", issues=[]) == "{b}"


# --- ports


def test_listening_socket_is_seen_with_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ports.parse(f"http://127.0.0.1:{server.getsockname()[1]}")
        assert ports.in_use(address)
        assert ports.listeners(address) == {os.getpid()}
    assert not ports.in_use(address)
    assert ports.listeners(address) == frozenset()


def test_socket_bound_to_every_interface_covers_loopback() -> None:
    with socket.create_server(("", 0)) as server:
        address = ports.parse(f"http://127.0.0.1:{server.getsockname()[1]}")
        assert ports.listeners(address) == {os.getpid()}


def test_dual_stack_socket_covers_the_version_4_address() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        address = ports.parse(f"http://127.0.0.1:{server.getsockname()[1]}")
        assert ports.listeners(address) == {os.getpid()}


def test_connected_socket_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        address = ports.parse(f"http://127.0.0.1:{client.getsockname()[1]}")
        assert ports.listeners(address) == frozenset()


def test_chosen_ports_are_free_and_different() -> None:
    chosen = ports.choose_free(20)
    assert len(set(chosen)) == 20
    assert not any(ports.in_use(ports.parse(f"http://127.0.0.1:{port}")) for port in chosen)


def test_address_of_another_machine_is_refused_with_the_way_out() -> None:
    with pytest.raises(EngineError, match="not an address of this machine") as caught:
        ports.in_use(ports.parse("http://192.0.2.1:80"))
    assert "commands" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("http://h", "h", 80), ("https://h", "h", 443), ("http://h:0/", "h", 0), ("http://[::1]:5/x", "::1", 5)],
)
def test_url_is_split(url: str, host: str, port: int) -> None:
    address = ports.parse(url)
    assert (address.host, address.port) == (host, port)


# --- processes


def test_identity_does_not_match_another_start() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert own.alive()
    assert not ProcessId(own.pid, own.start_ticks + 1).alive()


async def test_end_of_a_process_is_awaited_and_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220 - its end is the test
    identity = identify(child.pid)
    assert identity is not None
    waiting = asyncio.ensure_future(wait_gone(identity))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert child.stdin is not None
    child.stdin.close()
    await waiting
    assert not identity.alive()
    child.wait()
    await wait_gone(identity)


# --- shielded teardown


async def test_cancellation_waits_for_the_task_and_then_comes_through() -> None:
    release = asyncio.Event()
    inner = asyncio.ensure_future(release.wait())
    outer = asyncio.ensure_future(finish_despite_cancellation(inner))
    await asyncio.sleep(0)
    outer.cancel()
    await asyncio.sleep(0)
    assert not outer.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert inner.result() is True


async def test_failure_of_the_task_is_raised() -> None:
    async def fail() -> None:
        raise EngineError("no", phase="stop")

    with pytest.raises(EngineError):
        await finish_despite_cancellation(asyncio.ensure_future(fail()))


async def test_failure_behind_a_cancellation_is_noted_on_it() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise EngineError("pid 7 lives", phase="stop")

    outer = asyncio.ensure_future(finish_despite_cancellation(asyncio.ensure_future(fail())))
    await asyncio.sleep(0)
    outer.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await outer
    assert "pid 7 lives" in caught.value.__notes__[0]


# --- device memory


async def test_released_memory_is_not_waited_for() -> None:
    assert await wait_released(DeviceMemory(probe=dict, threshold_bytes=0), pids="") < 1.0


# --- log patterns


def test_line_counts_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    watch = LogWatch(path, ["Failing .* request"])
    assert watch.matches() == []
    path.write_bytes(b"ok\nFailing 2 requ")
    assert watch.matches() == []
    with path.open("ab") as log:
        log.write(b"est(s) due to KV load failure\r\nFailing 3 request(s)")
    assert watch.matches() == ["Failing 2 request(s) due to KV load failure"]
    assert watch.matches() == []
    assert watch.matches(finish=True) == ["Failing 3 request(s)"]


def test_endless_line_does_not_grow_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (MAX_LINE_BYTES + 1))
    assert len(LogWatch(path, ["x+"]).matches()) == 1


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(0, 60), max_size=5))
def test_lines_found_do_not_depend_on_where_reads_end(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(line.replace(b"\n", b"") + b"void\n" for line in lines)
    path = tmp_path_factory.mktemp("log") / "log"
    watch = LogWatch(path, ["void"])
    found = []
    for cut in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:cut])
        found += watch.matches()
    assert len(found) == len(lines)


# --- fingerprint


def test_environment_is_stored_by_allow_list_and_without_secrets() -> None:
    env = {
        "VLLM_API_KEY": "k",
        "HF_TOKEN": "t",
        "HOME": "/root",
        "VLLM_USE_V1": "1",
        "NCCL_DEBUG": "INFO",
        "PYTHONHASHSEED": "0",
    }
    assert fingerprint.relevant_env(env) == {"NCCL_DEBUG": "INFO", "PYTHONHASHSEED": "0", "VLLM_USE_V1": "1"}


def test_capacity_comes_with_every_label() -> None:
    text = (GOLDEN / "vllm-0.26-lmcache-0.5.3-h200x2/metrics_0_start.txt").read_text(encoding="utf-8")
    cache = fingerprint.cache_config(text, "vllm")
    assert (cache.block_size, cache.num_gpu_blocks) == (16, 50416)
    assert len(cache.labels) > 10


@pytest.mark.parametrize("text", ["", "<html></html>", "# nothing\n", None])
def test_capacity_is_unknown_where_the_engine_does_not_say(text: str | None) -> None:
    cache = fingerprint.cache_config(text, "vllm")
    assert (cache.block_size, cache.num_gpu_blocks, dict(cache.labels)) == (None, None, {})


@pytest.mark.parametrize(
    ("argv", "labels", "algorithm"),
    [
        (("--prefix-caching-hash-algo", "sha256_cbor"), {}, "sha256_cbor"),
        (("--prefix-caching-hash-algo=sha256",), {}, "sha256"),
        (("--other",), {"prefix_caching_hash_algo": "sha256"}, "sha256"),
        (None, {}, None),
    ],
)
def test_hash_algorithm_is_found(argv: tuple[str, ...] | None, labels: dict[str, str], algorithm: str | None) -> None:
    assert fingerprint.hash_algorithm(argv, labels) == algorithm


def test_digest_ignores_where_the_project_lies() -> None:
    stable = {"version": "1"}
    here = fingerprint.digest(stable, Command(argv=("/here/.venv/bin/python", "-m", "x")))
    there = fingerprint.digest(stable, Command(argv=("/there/.venv/bin/python", "-m", "x")))
    other = fingerprint.digest({"version": "2"}, Command(argv=("/here/.venv/bin/python", "-m", "x")))
    assert here == there
    assert here != other


def seeded(name: str, seed: str | None, *, kind: str = "vllm", algorithm: str | None = "sha256") -> ProcessFingerprint:
    return ProcessFingerprint(
        name=name,
        role="replica",
        kind=kind,
        managed=True,
        simulated=False,
        version="1",
        model="m",
        argv=(),
        env={},
        pid=1,
        start_ticks=1,
        created=1.0,
        executable=None,
        hash_seed=seed,
        hash_algorithm=algorithm,
    )


@pytest.mark.parametrize(
    ("replicas", "shared", "refused"),
    [
        ([seeded("A", "0"), seeded("B", "0")], True, None),
        ([seeded("A", "0"), seeded("B", "1")], False, "seeds .* differ"),
        ([seeded("A", "0"), seeded("B", None)], False, "B: unset"),
        ([seeded("A", None), seeded("B", None)], False, None),
        ([seeded("A", None), seeded("B", None)], True, "random"),
        ([seeded("A", "random"), seeded("B", "random")], True, "random"),
        ([seeded("A", None, kind="sim"), seeded("B", None, kind="sim")], True, None),
        ([seeded("A", "0"), seeded("B", "0", algorithm="xxhash")], False, "algorithms differ"),
    ],
)
def test_cor_2_hash_settings_of_all_replicas_are_compared(
    replicas: list[ProcessFingerprint], shared: bool, refused: str | None
) -> None:
    if refused is None:
        check_hashes(replicas, shared=shared)
        return
    with pytest.raises(EngineError, match=refused) as caught:
        check_hashes(replicas, shared=shared)
    assert caught.value.phase == "hash_mismatch"


# --- shared memory


def a_dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_only_segments_of_own_dead_processes_are_removed(tmp_path: Path) -> None:
    dead, foreign = a_dead_pid(), a_dead_pid()
    kept = [
        f"lmcache_kv_{foreign}_0",
        f"lmcache_kv_{os.getpid()}_0",
        f"lmcache_kv_{dead}",
        "psm_else",
        f"x_lmcache_kv_{dead}_0",
    ]
    for name in [*kept, f"lmcache_kv_{dead}_0", f"lmcache_kv_{dead}_12", "psm_ours"]:
        (tmp_path / name).write_bytes(bytes(4096))
    removed = shm.remove_own({dead, os.getpid()}, {"psm_ours"}, folder=tmp_path)
    assert {segment.name for segment in removed} == {f"lmcache_kv_{dead}_0", f"lmcache_kv_{dead}_12", "psm_ours"}
    assert sum(segment.bytes for segment in removed) == 3 * 4096
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_segment_that_a_living_process_maps_is_kept(tmp_path: Path) -> None:
    import mmap  # noqa: PLC0415 - only here

    path = tmp_path / "psm_shared"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert shm.mapped_by([os.getpid()], tmp_path) == {"psm_shared"}
        assert shm.remove_own((), {"psm_shared"}, folder=tmp_path) == ()
    assert path.exists()


def test_machine_without_shared_memory_has_nothing_to_remove(tmp_path: Path) -> None:
    assert shm.remove_own({1}, folder=tmp_path / "none") == ()
    assert shm.present(tmp_path / "none") == frozenset()
