"""What kind of machine this is, for the header of a run. Never a host name, user, path or serial number."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from harness.host import cgroup
from harness.host.gpu import gpus
from harness.host.memory import meminfo, memory_available

_CPU = "sys/devices/system/cpu"


def host_facts(root: Path = Path("/")) -> Mapping[str, Any]:
    """JSON values; None = not known here. Bytes, seconds, cores. Takes milliseconds (a second with GPUs)."""
    memory = meminfo(root)
    return {
        "cpu": _cpu(root),
        "memory": {
            "total": memory.get("MemTotal"),
            "available": memory_available(root),
            "swap_total": memory.get("SwapTotal"),
            "transparent_hugepages": _selected(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        },
        "cgroup": asdict(cgroup.limits(root)),
        "kernel": {"system": platform.system(), "release": platform.release(), "machine": platform.machine()},
        "virtualisation": {"hypervisor": _hypervisor(root), "container": _container(root)},
        "python": {"implementation": platform.python_implementation(), "version": platform.python_version()},
        "clocksource": _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "load": list(os.getloadavg()),
        "numa": {
            node.name: _text(node / "cpulist") for node in sorted((root / "sys/devices/system/node").glob("node*"))
        },
        "gpus": [asdict(gpu) for gpu in gpus()],
    }


def _cpu(root: Path) -> dict[str, Any]:
    governors = {_text(path) for path in (root / _CPU).glob("cpu[0-9]*/cpufreq/scaling_governor")}
    maximum = _text(root / _CPU / "cpu0/cpufreq/cpuinfo_max_freq")
    return {
        "model": _cpuinfo(root, "model name"),
        "logical": psutil.cpu_count(),
        "physical": psutil.cpu_count(logical=False),
        "usable": sorted(os.sched_getaffinity(0)),
        "governors": sorted(governor for governor in governors if governor) or None,
        "max_khz": int(maximum) if maximum and maximum.isdigit() else None,
        "boost": _text(root / _CPU / "cpufreq/boost"),
        "smt": _text(root / _CPU / "smt/active"),
    }


def _cpuinfo(root: Path, key: str) -> str | None:
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _hypervisor(root: Path) -> str | None:
    """Its kind where the kernel names it, else `yes` / `no` from the processor's own flag."""
    named = _text(root / "sys/hypervisor/type")
    if named:
        return named
    flags = _cpuinfo(root, "flags")
    return None if flags is None else ("yes" if "hypervisor" in flags.split() else "no")


def _container(root: Path) -> bool:
    return any((root / marker).exists() for marker in (".dockerenv", "run/.containerenv"))


def _selected(path: Path) -> str | None:
    """The word in brackets of a kernel choice such as `always [madvise] never`."""
    text = _text(path)
    return text.partition("[")[2].partition("]")[0] or None if text else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
