"""Facts, limits and contention, from made-up /proc and /sys trees and from this machine."""

from __future__ import annotations

import getpass
import json
import os
import platform
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.host import ContentionProbe, cgroup, gpu, host_facts, memory_available, memory_in_use


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


MEMINFO = "MemTotal:       64000000 kB\nMemAvailable:   32000000 kB\nHugePages_Total:       0\n"


def test_memory_of_a_container_is_what_its_group_leaves_not_what_the_host_has(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/memory.max": "8000000000\n",
            "sys/fs/cgroup/pod/memory.current": "5000000000\n",
            "sys/fs/cgroup/pod/memory.stat": "anon 1\ninactive_file 1000000000\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
            "sys/fs/cgroup/pod/box/memory.current": "4000000000\n",
            "sys/fs/cgroup/pod/box/cpu.max": "150000 100000\n",
        },
    )
    assert memory_available(root) == 4_000_000_000
    limits = cgroup.limits(root)
    assert (limits.version, limits.memory_limit, limits.cpus) == (2, 8_000_000_000, 1.5)


def test_version_1_limits_are_read_and_its_huge_number_is_no_limit(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "5:memory:/job\n2:cpu,cpuacct:/\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "3000000000\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "2500000000\n",
        "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 7\ntotal_inactive_file 100000000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    limits = cgroup.limits(tree(tmp_path, files))
    assert (limits.version, limits.memory_limit, limits.memory_free, limits.cpus) == (
        1,
        3_000_000_000,
        600_000_000,
        None,
    )


def test_without_limits_the_kernels_own_estimate_holds(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n"})
    assert memory_available(root) == 32_000_000 * 1024


def test_unknown_memory_is_none_not_zero(tmp_path: Path) -> None:
    assert memory_available(tmp_path) is None


def test_path_of_a_group_outside_its_namespace_falls_back_to_the_mount_point(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/container-1\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "400\n",
        },
    )
    assert cgroup.limits(root).memory_free == 600


def test_facts_of_a_machine_are_read(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/cpuinfo": "processor : 0\nmodel name\t: Example 9000\nflags\t\t: fpu hypervisor sse\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
            "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3500000\n",
            "sys/devices/system/node/node0/cpulist": "0-7\n",
            "sys/devices/system/node/node1/cpulist": "8-15\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "run/.containerenv": "",
        },
    )
    facts = host_facts(root)
    assert facts["cpu"]["model"] == "Example 9000"
    assert facts["cpu"]["governors"] == ["performance", "powersave"]
    assert facts["cpu"]["max_khz"] == 3_500_000
    assert facts["numa"] == {"node0": "0-7", "node1": "8-15"}
    assert facts["memory"]["transparent_hugepages"] == "madvise"
    assert facts["virtualisation"] == {"hypervisor": "yes", "container": True}


def test_facts_of_this_machine_are_json_and_name_neither_host_nor_user_nor_path() -> None:
    text = json.dumps(host_facts())
    node = platform.node()
    assert not node or node not in text
    assert f'"{getpass.getuser()}"' not in text
    assert "/" not in text


def test_machine_without_the_files_has_none_where_nothing_is_known(tmp_path: Path) -> None:
    facts = host_facts(tmp_path)
    assert facts["cpu"]["model"] is None
    assert facts["cpu"]["governors"] is None
    assert facts["memory"]["total"] is None
    assert facts["numa"] == {}


def fake_nvidia_smi(folder: Path, output: str, code: int = 0) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_gpus_are_read_and_what_a_device_does_not_say_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(
        tmp_path,
        "0, NVIDIA H200, 143771, 520, 3, 700.00, 570.1\n1, NVIDIA H200, 143771, 0, [N/A], [Not Supported], 570.1",
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    first, second = gpu.gpus()
    assert (first.memory_total, first.memory_used, first.power_limit_w) == (143771 * 2**20, 520 * 2**20, 700.0)
    assert (second.utilization_percent, second.power_limit_w) == (None, None)


def test_memory_in_use_is_the_probe_of_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "0, 520\n1, 0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert memory_in_use() == {"gpu0": 520 * 2**20, "gpu1": 0}


def test_driver_that_fails_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "NVIDIA-SMI has failed", code=9)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpu.gpus() == ()
    assert memory_in_use() == {}


HOG = """
import time
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("done", flush=True)
input()
"""


def hog() -> subprocess.Popen[bytes]:
    """A process that burns 0.3 s of CPU, says so, and lives on."""
    child = subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_cpu_time_of_others_is_told_apart_from_our_own() -> None:
    probe = ContentionProbe()
    probe.start()
    with hog() as child:
        foreign = probe.stop()
        own = probe.stop(own=[child.pid])
        child.communicate()
    assert foreign.others_s >= 0.2
    assert own.own_s - foreign.own_s == pytest.approx(0.3, abs=0.25)
    assert own.own_s - foreign.own_s >= 0.25


def test_time_a_process_used_before_the_start_is_not_counted() -> None:
    with hog() as child:
        probe = ContentionProbe()
        probe.start(own=[child.pid])
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        assert probe.stop().own_s < 0.25
        child.communicate()


def test_pressure_is_none_without_that_kernel_feature(tmp_path: Path) -> None:
    probe = ContentionProbe(tmp_path)
    probe.start()
    assert probe.stop().pressure_s is None


def test_pressure_is_the_stall_between_start_and_stop(tmp_path: Path) -> None:
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    tree(tmp_path, {"proc/pressure/cpu": line.format(1_000_000)})
    probe = ContentionProbe(tmp_path)
    probe.start()
    tree(tmp_path, {"proc/pressure/cpu": line.format(3_500_000)})
    assert probe.stop().pressure_s == 2.5
