"""LMCache's own layout detection and paged transfer, driven with the pattern of `representation`.

Only public-enough entry points that both 0.5.3 and 0.5.6 have are used: `normalize_kv_and_discover_format`,
`gather_paged_kv_to_cpu`, `scatter_cpu_to_paged_kv`. A layout that the installed build does not support is reported as
*not driven* in the facts; a layout that it does support and moves wrongly fails.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import types
from typing import Any

import numpy as np

from harness.probes.paging import Layout
from harness.probes.representation import filled_pool
from harness.probes.results import Check

LAYERS = 2
PAGES = 98
PAGE_TOKENS = 32
PAGES_PER_CHUNK = 49


def _modules() -> tuple[Any, Any, Any] | None:
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("lmcache")
        base = importlib.import_module("lmcache.v1.multiprocess.transfer_context.base")
    except Exception:  # noqa: BLE001 - a broken installation is "not driven", with the reason in the facts
        return None
    detection = importlib.import_module("lmcache.v1.gpu_connector.utils")
    return torch, base, detection


def installed() -> dict[str, Any]:
    """Version of LMCache and whether its compiled copy is in use; `version` is None where it is not installed.

    The module that the helpers call is a proxy over either the compiled extension or Python functions, so the question
    is put to the function itself: a compiled one is no Python function or method.
    """
    try:
        version = importlib.metadata.version("lmcache")
    except importlib.metadata.PackageNotFoundError:
        return {"version": None}
    found: dict[str, Any] = {"version": version, "compiled": None, "copy": None}
    try:
        ops = importlib.import_module("lmcache.v1.gpu_connector.gpu_ops").lmc_ops
        copy = ops.lmcache_memcpy_async
    except Exception as error:  # noqa: BLE001 - an extension built for another torch fails in many ways
        return {**found, "error": f"{type(error).__name__}: {error}"[:300]}
    in_python = isinstance(copy, types.FunctionType | types.MethodType)
    return {**found, "compiled": not in_python, "copy": f"{type(copy).__name__} of {getattr(copy, '__module__', None)}"}


def _one(torch: Any, base: Any, detection: Any, layout: Layout, device: str) -> tuple[Check | None, str]:
    """One layout on one device: detect, gather two chunks, scatter them swapped, compare every byte of every layer."""
    engine = importlib.import_module("lmcache.utils").EngineType.VLLM
    hints = {"kv_layout": layout.order}
    # bfloat16 pairs of pattern bytes: LMCache works on engine dtypes, the comparison stays on raw bytes.
    raw = [filled_pool(layout, PAGES) ^ np.uint8(index + 1) for index in range(LAYERS)]
    caches = {f"layer.{i}": torch.from_numpy(a.copy()).view(torch.bfloat16).to(device) for i, a in enumerate(raw)}
    try:
        found, _ = detection.normalize_kv_and_discover_format(list(caches.values()), engine, hints)
        ids = list(range(PAGES))
        chunks = base.gather_paged_kv_to_cpu(caches, ids, PAGES_PER_CHUNK, layout_hints=hints)
        if device != "cpu":
            torch.cuda.synchronize()
        target = {name: torch.zeros_like(cache) for name, cache in caches.items()}
        swapped = ids[PAGES_PER_CHUNK:] + ids[:PAGES_PER_CHUNK]
        base.scatter_cpu_to_paged_kv(target, swapped, chunks, PAGES_PER_CHUNK, layout_hints=hints)
        if device != "cpu":
            torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - an unsupported layout raises many kinds; it is named, not hidden
        return None, f"not driven: {type(error).__name__}: {error}"[:200]
    wrong = 0
    axis = 0 if layout.rank == 4 else 1
    for index, name in enumerate(caches):
        got = target[name].view(torch.uint8).cpu().numpy().reshape(raw[index].shape)
        want = np.take(raw[index], swapped, axis=axis)
        wrong += int(np.sum(got != want))
    label = f"LMCache {found} on {device}: {layout.name}"
    return Check(name=label, trials=LAYERS * PAGES, failures=LAYERS * PAGES if wrong else 0,
                 detail=f"{wrong} wrong bytes", data={"wrong_bytes": wrong}), "driven"  # fmt: skip


def drive_transfer() -> tuple[list[Check], dict[str, Any]]:
    """Checks of LMCache's own path for each layout and device, and what could not be driven."""
    facts = installed()
    modules = _modules() if facts["version"] else None
    if modules is None:
        return [], {**facts, "driven": "LMCache is not installed or does not import here"}
    torch, base, detection = modules
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else ["cpu"]
    checks: list[Check] = []
    driven: dict[str, str] = {}
    for device in devices:
        for rank in (4, 5):
            for order in ("HND", "NHD"):
                layout = Layout(rank=rank, order=order, page_tokens=PAGE_TOKENS, heads=2, head_size=32)
                check, note = _one(torch, base, detection, layout, device)
                driven[f"{device} {layout.name}"] = note
                if check is not None:
                    checks.append(check)
    return checks, {**facts, "driven": driven}
