"""Layer 3, allocator and helper: LMCache's own host allocators and copy helpers behind delayed work on a stream.

For each allocator (lazy, mixed) and each implementation of the copy that the installation offers (compiled, Python
fallback) a 1 MiB uint8 object is copied in both directions on a non-blocking stream after a delay of 10^8 cycles,
five times each. The branch that the arm's flags select, with the implementation that is really in use, must pass; the
other branches are shown beside it. The fallback of the lazy path copies without a stream and is expected to fail.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from harness.probes.copy_ordering import OVERTAKEN, PRODUCED, STALE
from harness.probes.cudart import torch_with_cuda
from harness.probes.lmcache_paths import installed
from harness.probes.results import Check

NBYTES = 1 << 20
DELAY = 10**8
REPEATS = 5
POOL = 128 << 20


def deployed_branch(flags: Sequence[str]) -> str:
    """`mixed` only where `--no-l1-use-lazy` is given: leaving the flag out selects the lazy allocator."""
    return "mixed" if "--no-l1-use-lazy" in flags else "lazy"


def _allocators() -> dict[str, Any]:
    lazy = importlib.import_module("lmcache.v1.memory_allocators.lazy_memory_allocator")
    mixed = importlib.import_module("lmcache.v1.memory_allocators.mixed_memory_allocator")
    return {"lazy": lazy.LazyMemoryAllocator(POOL, POOL), "mixed": mixed.MixedMemoryAllocator(POOL)}


@contextlib.contextmanager
def _implementation(gpu_ops: Any, name: str) -> Iterator[None]:
    """Let the helpers use the named copy implementation for a while; `deployed` leaves them as installed."""
    if name == "deployed":
        yield
        return
    kept = gpu_ops.lmc_ops
    kernels = _fallback_module()
    types = importlib.import_module("lmcache.v1.platform.ops_types")
    gpu_ops.lmc_ops = SimpleNamespace(
        lmcache_memcpy_async=kernels.lmcache_memcpy_async, TransferDirection=types.TransferDirection
    )
    try:
        yield
    finally:
        gpu_ops.lmc_ops = kept


def _fallback_module() -> Any:
    for name in ("lmcache.v1.platform.torch_ops.mem_kernels", "lmcache.v1.platform.torch_ops"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            if hasattr(module, "lmcache_memcpy_async"):
                return module
    raise ImportError("this LMCache has no Python fallback of lmcache_memcpy_async")


def _object(torch: Any, allocator: Any, value: int) -> Any:
    memory = importlib.import_module("lmcache.v1.memory_management")
    obj = allocator.allocate(torch.Size([NBYTES]), torch.uint8, memory.MemoryFormat.KV_2LTD)
    if obj is None:
        raise MemoryError(f"the allocator gave no object of {NBYTES} bytes")
    obj.raw_tensor.view(torch.uint8)[:NBYTES].fill_(value)
    return obj


def _d2h(torch: Any, gpu_ops: Any, allocator: Any, stream: Any) -> int:
    device = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
    obj = _object(torch, allocator, STALE)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(DELAY)  # noqa: SLF001 - the only delay kernel PyTorch has
        device.fill_(PRODUCED)
        gpu_ops.lmcache_memcpy_async_d2h(device, obj)
    torch.cuda.synchronize()
    wrong = int((obj.raw_tensor.view(torch.uint8)[:NBYTES] != PRODUCED).sum())
    allocator.free(obj)
    return wrong


def _h2d(torch: Any, gpu_ops: Any, allocator: Any, stream: Any) -> int:
    device = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
    seen = torch.full((NBYTES,), 1, dtype=torch.uint8, device="cuda")
    obj = _object(torch, allocator, OVERTAKEN)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(DELAY)  # noqa: SLF001 - the only delay kernel PyTorch has
        seen.copy_(device)
        gpu_ops.lmcache_memcpy_async_h2d(obj, device)
    torch.cuda.synchronize()
    wrong = int((seen != STALE).sum())
    allocator.free(obj)
    return wrong


def child(device: int, flags: Sequence[str]) -> dict[str, Any]:
    """Every allocator × implementation × direction on one GPU; plain data for the parent."""
    torch, missing = torch_with_cuda()
    facts = installed()
    if torch is None:
        return {"missing": missing, "facts": facts}
    if facts["version"] is None:
        return {"missing": "LMCache is not installed", "facts": facts}
    started = time.monotonic()
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device=device)
    gpu_ops = importlib.import_module("lmcache.v1.gpu_connector.gpu_ops")
    in_use = "compiled" if facts["compiled"] else "fallback"
    branch = deployed_branch(flags)
    copies = {"deployed": f"{in_use} copy", "fallback": "Python fallback"}
    checks: list[Check] = []
    for name, allocator in _allocators().items():
        for implementation in ("deployed", "fallback"):
            blind_copy = implementation == "fallback" or in_use == "fallback"  # the fallback has no stream
            is_deployed = implementation == "deployed" and name == branch
            with _implementation(gpu_ops, implementation):
                wrong = [test(torch, gpu_ops, allocator, stream) for test in (_d2h, _h2d) for _ in range(REPEATS)]
            checks.append(
                Check(
                    name=f"GPU {device}: {name} allocator, {copies[implementation]}{' (deployed)' * is_deployed}",
                    trials=len(wrong),
                    failures=sum(1 for w in wrong if w),
                    expected="fail" if name == "lazy" and blind_copy and not is_deployed else "pass",
                    detail=f"{sum(wrong)} mismatching bytes of {len(wrong) * NBYTES}",
                )
            )
    facts = {**facts, "branch": branch, "in_use": in_use, "torch": torch.__version__}
    return {"checks": checks, "facts": facts, "seconds": time.monotonic() - started}
