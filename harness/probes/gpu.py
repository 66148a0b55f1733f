"""Layers 1 to 4 as separate processes: start the children, read their results, put them together.

`python -m harness.probes.gpu --out DIR` runs them alone, with nothing but PyTorch, numpy and (for layer 3) LMCache
installed, and writes `gpu-layers.json` and `copy-ordering.csv`.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.probes.child import MARK
from harness.probes.results import Check, LayerName, LayerResult, from_checks, not_validated, result_from_json

TIMEOUT_S = 900


def call(
    python: str,
    name: str,
    arguments: Mapping[str, Any],
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """Result of one child; a child that dies or prints nothing becomes `{"missing": reason}`, never a pass."""
    argv = [python, "-m", "harness.probes.child", name, json.dumps(dict(arguments))]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False, env=env)
    except subprocess.TimeoutExpired:
        return {"missing": f"the {name} process gave no answer in {timeout_s:.0f} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(MARK):
            found: dict[str, Any] = json.loads(line[len(MARK) :])
            return found
    tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
    return {"missing": f"the {name} process ended with code {done.returncode}: {' | '.join(tail)}"}


def gpu_count(python: str, env: Mapping[str, str] | None = None) -> int:
    """GPUs that PyTorch sees under that interpreter; 0 without PyTorch."""
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300, check=False, env=env)
    text = done.stdout.strip()
    return int(text) if done.returncode == 0 and text.isdigit() else 0


def _collect(layer: LayerName, results: Sequence[dict[str, Any]]) -> LayerResult:
    missing = [r["missing"] for r in results if "missing" in r]
    checks = [Check(**c) for r in results for c in r.get("checks", [])]
    facts = {"processes": [{k: v for k, v in r.items() if k not in {"checks", "rows"}} for r in results]}
    if missing and not checks:
        return not_validated(layer, "; ".join(dict.fromkeys(missing)), facts=facts)
    done = from_checks(layer, checks, facts=facts, seconds=sum(r.get("seconds", 0.0) for r in results))
    if missing and done.status == "passed":
        return not_validated(layer, f"partly: {'; '.join(dict.fromkeys(missing))}", facts=facts)
    return done


def representation(python: str, env: Mapping[str, str] | None = None) -> LayerResult:
    """Layer 1 under the given interpreter."""
    found = call(python, "representation", {}, env)
    return result_from_json(found["result"]) if "result" in found else not_validated("representation", found["missing"])


def copy_ordering(
    python: str, gpus: int, processes: int = 2, env: Mapping[str, str] | None = None
) -> tuple[LayerResult, list[dict[str, Any]]]:
    """Layer 2 on every GPU, `processes` separate processes each; also every single trial."""
    if not gpus:
        return not_validated("copy_ordering", "no CUDA device"), []
    results = [
        call(python, "copy_ordering", {"device": g, "process": p}, env) for g in range(gpus) for p in range(processes)
    ]
    rows = [{"process": i, **row} for i, r in enumerate(results) for row in r.get("rows", [])]
    return _collect("copy_ordering", results), rows


def allocator(python: str, gpus: int, flags: Sequence[str], env: Mapping[str, str] | None = None) -> LayerResult:
    """Layer 3 on every GPU."""
    if not gpus:
        return not_validated("allocator", "no CUDA device")
    return _collect(
        "allocator", [call(python, "allocator", {"device": g, "flags": list(flags)}, env) for g in range(gpus)]
    )


def full_pool(
    python: str, gpus: int, pool_bytes: int, declared_limit: int | None = None, env: Mapping[str, str] | None = None
) -> LayerResult:
    """Layer 4: the pool exact; beside it a sixteenth with PyTorch's rounding, to show what the setting avoids."""
    if not gpus:
        return not_validated("full_pool", "no CUDA device (memory is pinned through the CUDA driver)")
    found = {}
    for way in ("runtime", "threshold", "rounded"):
        size = pool_bytes // 16 if way == "rounded" else pool_bytes
        arguments = {"pool_bytes": size, "way": way, "declared_limit": declared_limit}
        found[way] = call(python, "full_pool", arguments, env)
    # PyTorch's setting is one way to the exact size and the runtime another: the one that is missing is named, the
    # layer is decided by what was pinned at full size.
    if found["runtime"].get("checks") and "missing" in found["threshold"]:
        found["threshold"] = {"not_available": found["threshold"]["missing"], "facts": found["threshold"].get("facts")}
    return _collect("full_pool", list(found.values()))


def main() -> None:
    """Run the four layers here and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu-layers.json and copy-ordering.csv")
    parser.add_argument("--pool-gib", type=int, default=64, help="pool size of the ON arm (default 64)")
    parser.add_argument(
        "--memory-gib", type=int, help="memory of this host, where MemAvailable grows only as it is touched"
    )
    parser.add_argument(
        "--flag", action="append", default=["--no-l1-use-lazy"], help="flag of the deployed cache server"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    gpus, started = gpu_count(sys.executable), time.monotonic()
    ordering, rows = copy_ordering(sys.executable, gpus)
    limit = options.memory_gib << 30 if options.memory_gib else None
    layers = [
        representation(sys.executable),
        ordering,
        allocator(sys.executable, gpus, options.flag),
        full_pool(sys.executable, gpus, options.pool_gib << 30, limit),
    ]
    for layer in layers:
        sys.stdout.write(f"{layer.layer}: {layer.status} - {layer.summary}\n")
        for check in layer.checks:
            mark = "ok" if check.ok else "NOT OK"
            sys.stdout.write(
                f"  {mark:7} {check.failures}/{check.trials} failed ({check.expected} expected) "
                f"{check.name}: {check.detail}\n"
            )
    data = {"gpus": gpus, "seconds": time.monotonic() - started, "layers": [layer.to_json() for layer in layers]}
    (options.out / "gpu-layers.json").write_text(json.dumps(data, indent=1))
    if rows:
        with (options.out / "copy-ordering.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
