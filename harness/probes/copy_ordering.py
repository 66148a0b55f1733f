"""Layer 2, copy ordering: does a copy between GPU and pinned host wait for the work queued before it?

Device to host: after a delay of `cycles`, a producer writes 37 on a non-blocking stream; the copy must deliver 37, a
copy that overtook delivers the stale 0. Host to device: after the delay a consumer reads the GPU buffer and must see
the old 0; a copy that overtook lets it read 53. The stream is neither the default stream nor blocking against it:
there the raw copy would synchronise and the probe would see nothing.

Source of the matrix: arXiv 2609.15021v1, correctness layer "copy ordering".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness.probes.cudart import DEVICE_TO_HOST, HOST_TO_DEVICE, Runtime, torch_with_cuda
from harness.probes.results import Check

SIZES = (4 << 10, 1 << 20, 16 << 20)
DELAYS = (0, 10**8)
TRIALS = 10
PRODUCED, STALE, OVERTAKEN = 37, 0, 53
DIRECTIONS = ("d2h", "h2d")

Copy = Callable[[Any, Any, int, Any], None]
"""(target tensor, source tensor, cudaMemcpyKind, stream) → the copy has been issued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial: how many bytes did not hold what order demands."""

    mechanism: str
    nbytes: int
    direction: str
    delay_cycles: int
    trial: int
    wrong_bytes: int


def mechanisms(runtime: Runtime) -> dict[str, Copy]:
    """The four ways to copy; only the first ignores the stream."""

    def raw(target: Any, source: Any, kind: int, _stream: Any) -> None:
        runtime.copy(target.data_ptr(), source.data_ptr(), target.numel(), kind)

    def wait_then_raw(target: Any, source: Any, kind: int, stream: Any) -> None:
        stream.synchronize()
        raw(target, source, kind, stream)

    def on_stream(target: Any, source: Any, kind: int, stream: Any) -> None:
        runtime.copy_async(target.data_ptr(), source.data_ptr(), target.numel(), kind, stream.cuda_stream)

    def tensor_copy(target: Any, source: Any, _kind: int, _stream: Any) -> None:
        target.copy_(source, non_blocking=True)

    return {"raw": raw, "wait-then-raw": wait_then_raw, "async on stream": on_stream, "tensor copy": tensor_copy}


def device_to_host(torch: Any, stream: Any, copy: Copy, nbytes: int, delay: int) -> int:
    """Bytes of the host buffer that are not what the producer wrote before the copy was issued."""
    device = torch.zeros(nbytes, dtype=torch.uint8, device="cuda")
    host = torch.full((nbytes,), STALE, dtype=torch.uint8).pin_memory()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        if delay:
            torch.cuda._sleep(delay)  # noqa: SLF001 - the only delay kernel PyTorch has
        device.fill_(PRODUCED)
        copy(host, device, DEVICE_TO_HOST, stream)
    torch.cuda.synchronize()
    return int((host != PRODUCED).sum())


def host_to_device(torch: Any, stream: Any, copy: Copy, nbytes: int, delay: int) -> int:
    """Bytes that a consumer queued before the copy read from after it."""
    device = torch.zeros(nbytes, dtype=torch.uint8, device="cuda")
    seen = torch.full((nbytes,), 1, dtype=torch.uint8, device="cuda")
    host = torch.full((nbytes,), OVERTAKEN, dtype=torch.uint8).pin_memory()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        if delay:
            torch.cuda._sleep(delay)  # noqa: SLF001 - the only delay kernel PyTorch has
        seen.copy_(device)
        copy(device, host, HOST_TO_DEVICE, stream)
    torch.cuda.synchronize()
    return int((seen != STALE).sum())


def trials(torch: Any, device: int) -> Iterator[Trial]:
    """The whole matrix on one GPU: 4 mechanisms × 3 sizes × 2 directions × 2 delays × 10 trials."""
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device=device)
    table = mechanisms(Runtime())
    tests = {"d2h": device_to_host, "h2d": host_to_device}
    for warm in DIRECTIONS:  # first launches compile and load kernels, which would order everything
        tests[warm](torch, stream, table["tensor copy"], SIZES[0], 0)
    for name, copy in table.items():
        for nbytes in SIZES:
            for direction in DIRECTIONS:
                for delay in DELAYS:
                    for trial in range(TRIALS):
                        wrong = tests[direction](torch, stream, copy, nbytes, delay)
                        yield Trial(mechanism=name, nbytes=nbytes, direction=direction, delay_cycles=delay,
                                    trial=trial, wrong_bytes=wrong)  # fmt: skip


def summarise(rows: list[Trial], where: str) -> list[Check]:
    """One check per mechanism and delay; the delayed raw copy is the negative control."""
    checks = []
    for name in dict.fromkeys(row.mechanism for row in rows):
        for delay in DELAYS:
            cell = [row for row in rows if row.mechanism == name and row.delay_cycles == delay]
            failed = [row for row in cell if row.wrong_bytes]
            checks.append(
                Check(
                    name=f"{where}: {name}, delay {delay:.0e}" if delay else f"{where}: {name}, no delay",
                    trials=len(cell),
                    failures=len(failed),
                    expected="fail" if name == "raw" and delay else "pass",
                    detail=f"{sum(r.wrong_bytes for r in cell)} mismatching bytes of {sum(r.nbytes for r in cell)}",
                )
            )
    return checks


def child(device: int, process: int) -> dict[str, Any]:
    """Run the matrix in this process; plain data for the parent."""
    torch, missing = torch_with_cuda()
    if torch is None:
        return {"missing": missing}
    started = time.monotonic()
    rows = list(trials(torch, device))
    checks = summarise(rows, f"GPU {device} process {process}")
    return {
        "checks": checks,
        "rows": rows,
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "seconds": time.monotonic() - started,
    }
