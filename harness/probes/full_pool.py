"""Layer 4, full pool: the whole configured pool plus alignment is allocated and pinned, in a process of its own.

Before that, the memory is checked against the cgroup's limit, never against MemTotal, which can grow as memory is
touched. A pageable fallback (`is_pinned` false) is a failure, not a warning: transfers from it are not asynchronous.
PyTorch's pinned allocator rounds up to the next power of two unless
`PYTORCH_CUDA_ALLOC_CONF=pinned_max_round_threshold_mb:N` is set; with 256 GiB + 4,096 bytes that would be 512 GiB.
PyTorch versions that do not know the setting refuse it; there the exact size is pinned through the runtime.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

from harness.probes.cudart import Runtime, torch_with_cuda
from harness.probes.results import Check

ALIGNMENT = 4096
THRESHOLD = "pinned_max_round_threshold_mb:128"


def rounded(nbytes: int, *, threshold: bool) -> int:
    """Bytes that the pinned allocator takes: the next power of two, or `nbytes` itself above the threshold."""
    return nbytes if threshold else 1 << (nbytes - 1).bit_length()


def memory_limit() -> tuple[int | None, int]:
    """(bytes the cgroup still allows, bytes MemAvailable says); the first is None without a cgroup limit."""
    allowed: int | None = None
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        path = Path(limit)
        if path.exists() and (text := path.read_text().strip()).isdigit() and int(text) < 1 << 60:
            allowed = int(text) - int(Path(used).read_text())
            break
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return allowed, int(fields["MemAvailable"].split()[0]) * 1024


def resident_bytes() -> int:
    """VmRSS of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmRSS in /proc/self/status")


def _threshold_buffer(torch: Any, nbytes: int) -> tuple[Any, dict[str, Any]]:
    """PyTorch's pinned allocator, with whatever configuration the environment holds."""
    buffer = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    stats = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {}
    return buffer, {"allocator_bytes": stats.get("allocated_bytes.current")}


def _runtime_buffer(torch: Any, nbytes: int) -> tuple[Any, dict[str, Any]]:
    """`cudaHostAlloc` of the exact size, as LMCache's mixed allocator does."""
    address = Runtime().host_alloc(nbytes)
    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=torch.uint8), {}


def child(pool_bytes: int, *, way: str, declared_limit: int | None = None) -> dict[str, Any]:
    """Allocate and pin `pool_bytes` + 4,096 in this process.

    `way` is `threshold` (PyTorch with the setting), `rounded` (PyTorch without it) or `runtime` (cudaHostAlloc).
    `declared_limit` in bytes replaces MemAvailable on hosts whose memory grows as it is touched.
    """
    if way == "threshold":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = THRESHOLD  # read when PyTorch initialises CUDA, so before the import
    torch, missing = torch_with_cuda()
    if torch is None:
        return {"missing": missing}
    nbytes = pool_bytes + ALIGNMENT
    needed = rounded(nbytes, threshold=way != "rounded")
    allowed, available = memory_limit()
    limit = min(x for x in (allowed, declared_limit or available) if x is not None)
    facts: dict[str, Any] = {
        "way": way, "bytes": nbytes, "needed": needed, "cgroup_allows": allowed, "mem_available": available,
        "limit_used": limit, "torch": torch.__version__,
    }  # fmt: skip
    if needed > limit:
        return {"missing": f"{needed} bytes of memory for a pool of {nbytes}, {way} (limit {limit})", "facts": facts}
    try:
        torch.cuda.init()
    except ValueError as error:  # an allocator setting this PyTorch does not know
        return {"missing": f"PyTorch {torch.__version__} without the setting {THRESHOLD} ({error})", "facts": facts}
    return _measure(torch, nbytes, way, facts)


def _measure(torch: Any, nbytes: int, way: str, facts: dict[str, Any]) -> dict[str, Any]:
    before, started = resident_bytes(), time.monotonic()
    buffer, more = (_runtime_buffer if way == "runtime" else _threshold_buffer)(torch, nbytes)
    seconds = time.monotonic() - started
    buffer[:: 1 << 12] = 1  # one byte a page: the memory is really there
    facts.update(more, seconds=seconds, is_pinned=bool(buffer.is_pinned()), resident=resident_bytes() - before)
    pinned = facts["is_pinned"] and facts["resident"] >= nbytes * 0.99
    check = Check(
        name=f"pool of {nbytes} bytes, {way}",
        trials=1,
        failures=int(not pinned),
        data=facts,
        detail=f"is_pinned {facts['is_pinned']}, {seconds:.3f} s, {facts['resident']} bytes resident, {more}",
    )
    return {"checks": [check], "facts": facts}
