"""GPUs as nvidia-smi sees them; nothing where there is none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TIMEOUT_S = 20.0
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device. No serial number or UUID: a report may be published."""

    index: int
    name: str
    memory_total: int
    """Bytes."""
    memory_used: int
    """Bytes."""
    utilization_percent: float | None
    power_limit_w: float | None
    driver: str


_FIELDS = "index,name,memory.total,memory.used,utilization.gpu,power.limit,driver_version"


def gpus() -> tuple[Gpu, ...]:
    """All devices, () without nvidia-smi or where it fails (no driver)."""
    lines = _query(_FIELDS)
    return tuple(_gpu([word.strip() for word in line.split(",")]) for line in lines)


def memory_in_use() -> Mapping[str, int]:
    """Device name (`gpu0`, …) → bytes in use now: the probe of `engines.DeviceMemory`."""
    used = (line.split(",") for line in _query("index,memory.used"))
    return {f"gpu{index.strip()}": int(mebibytes) * _MIB for index, mebibytes in used}


def _query(fields: str) -> Sequence[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    argv = [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return [line for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else ()


def _gpu(words: Sequence[str]) -> Gpu:
    return Gpu(
        index=int(words[0]),
        name=words[1],
        memory_total=int(words[2]) * _MIB,
        memory_used=int(words[3]) * _MIB,
        utilization_percent=_float(words[4]),
        power_limit_w=_float(words[5]),
        driver=words[6],
    )


def _float(text: str) -> float | None:
    """A number, or None for nvidia-smi's `[N/A]` and `[Not Supported]`."""
    try:
        return float(text)
    except ValueError:
        return None
