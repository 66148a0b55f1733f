"""The CUDA runtime through ctypes: raw copies that PyTorch itself never issues, and a delay on the current stream."""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import Any

HOST_TO_DEVICE = 1
DEVICE_TO_HOST = 2


def runtime_path() -> str:
    """Path of the libcudart that PyTorch has loaded into this process; FileNotFoundError where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcudart" in line and ".so" in line:
            return line.split()[-1]
    raise FileNotFoundError("no libcudart is loaded in this process")


class Runtime:
    """Copies and pinned memory through the very library that PyTorch uses; a non-zero status raises RuntimeError."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(runtime_path())
        self._lib.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._lib.cudaMemcpyAsync.argtypes = [*self._lib.cudaMemcpy.argtypes, ctypes.c_void_p]

    def copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        """A copy without a stream: ordered only against the legacy default stream."""
        self._check(self._lib.cudaMemcpy(target, source, nbytes, kind))

    def host_alloc(self, nbytes: int) -> int:
        """Address of `nbytes` page-locked bytes, exactly as many as asked for (portable flag)."""
        pointer = ctypes.c_void_p()
        self._check(self._lib.cudaHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(nbytes), 1))
        return int(pointer.value or 0)

    def host_free(self, address: int) -> None:
        """Give back what `host_alloc` gave."""
        self._check(self._lib.cudaFreeHost(ctypes.c_void_p(address)))

    def copy_async(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        """A copy on the given stream."""
        self._check(self._lib.cudaMemcpyAsync(target, source, nbytes, kind, stream))

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"CUDA runtime returned status {status}")


def torch_with_cuda() -> tuple[Any | None, str]:
    """(torch, "") where CUDA works, else (None, which part is missing)."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None, "PyTorch is not installed"
    if not torch.cuda.is_available():
        return None, "no CUDA device is visible to PyTorch"
    return torch, ""
