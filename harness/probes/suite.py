"""All layers of one arm in order, one `LayerResult` each. A layer that cannot run here is never a pass."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.model.errors import EngineError, FixtureError, HarnessError
from harness.model.screening import Arm, Screening
from harness.probes import gpu, protocol, provenance, service, service_bodies, service_plan, service_rows
from harness.probes.columns import schema
from harness.probes.identity import ArmIdentity, cache_flags, pool_bytes
from harness.probes.results import LAYERS, LayerName, LayerResult, not_validated
from harness.probes.service_plan import FULL, Composition
from harness.probes.system import OnStep, OpenSystem, ignore_step

OnLayer = Callable[[LayerName, LayerResult | None], None]
"""(layer, None) when it begins, (layer, its result) when it has ended."""

HTTP_LAYERS: tuple[LayerName, ...] = ("service", "protocol")
COPY_TRIALS = schema(
    {
        "process": "int",
        "mechanism": "str",
        "nbytes": "int",
        "direction": "str",
        "delay_cycles": "int",
        "trial": "int",
        "wrong_bytes": "int",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is validated, and with what."""

    screening: Screening
    arm: Arm
    identity: ArmIdentity
    root: Path
    python: str
    """Interpreter that layers 1 to 4 run under: the engine's own where the declaration names one."""
    fixtures_cache: Path
    open_system: OpenSystem
    composition: Composition = FULL
    layers: Collection[LayerName] = LAYERS
    pool_gib: float | None = None
    on_layer: OnLayer = lambda _name, _result: None
    on_step: OnStep = ignore_step


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the layers found, and the tables behind them."""

    results: dict[LayerName, LayerResult] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    processes: dict[str, str] = field(default_factory=dict)


async def run(task: Task) -> Outcome:
    """Every asked layer in order; the arm is started once, for layers 5 and 6."""
    outcome = Outcome()
    gpus: int | None = None
    for name in LAYERS:
        if name not in task.layers or name in outcome.results:
            continue
        if name in HTTP_LAYERS:
            await _http(task, outcome)
            continue
        task.on_layer(name, None)
        if name in ("copy_ordering", "allocator", "full_pool") and gpus is None:
            gpus = gpu.gpu_count(task.python, _env(task))
        _keep(task, outcome, name, _local(task, outcome, name, gpus or 0))
    return outcome


def _keep(task: Task, outcome: Outcome, name: LayerName, result: LayerResult) -> None:
    outcome.results[name] = result
    task.on_layer(name, result)


def _local(task: Task, outcome: Outcome, name: LayerName, gpus: int) -> LayerResult:
    """Layers without an engine."""
    flags, env = cache_flags(task.identity), _env(task)
    if name == "representation":
        return gpu.representation(task.python, env)
    if name == "copy_ordering":
        result, trials = gpu.copy_ordering(task.python, gpus, env=env)
        if trials:
            outcome.tables["copy-ordering"] = pa.Table.from_pylist(trials, schema=COPY_TRIALS)
        return result
    if name == "allocator":
        return gpu.allocator(task.python, gpus, flags, env)
    if name == "full_pool":
        size = round(task.pool_gib * (1 << 30)) if task.pool_gib else pool_bytes(flags)
        if gpus and size is None:
            return not_validated("full_pool", "the arm declares no pool size (--l1-size-gb; or give --pool-gib)")
        return gpu.full_pool(task.python, gpus, size or 0, env=env)
    model_dir = task.screening.engine.model_dir
    folder = task.root / model_dir if model_dir else None
    return provenance.run(folder, progress=lambda done, total: task.on_step("hashing", done, total))


async def _http(task: Task, outcome: Outcome) -> None:
    """Layers 5 and 6 on one start of the arm; what keeps the arm from starting leaves both not validated."""
    asked = [name for name in HTTP_LAYERS if name in task.layers]
    refusal = _unfit(task.screening)
    if refusal is not None:
        for name in asked:
            _keep(task, outcome, name, not_validated(name, refusal))
        return
    try:
        bodies = _bodies(task) if "service" in asked else None
        task.on_step("starting the arm", 0, 0)
        async with task.open_system() as system:
            outcome.processes.update(
                {name: str(facts["fingerprint_digest"]) for name, facts in system.fingerprints.items()}
            )
            if bodies is not None:
                task.on_layer("service", None)
                plan, built = bodies
                result, rows = await service.run(
                    system, task.screening, task.arm, plan=plan, bodies=built, on_step=task.on_step
                )
                outcome.tables["service-requests"] = service_rows.to_table(rows)
                _keep(task, outcome, "service", result)
            if "protocol" in asked:
                task.on_layer("protocol", None)
                _keep(task, outcome, "protocol", await protocol.run(system, task.screening, task.on_step))
    except (EngineError, FixtureError) as error:
        left = [name for name in asked if name not in outcome.results]
        if not left:  # the layers had ended: it is the teardown that failed, and that must not pass unseen
            raise
        for name in left:
            _keep(task, outcome, name, not_validated(name, _words(error), facts=_about(error)))


def _unfit(screening: Screening) -> str | None:
    if len(screening.engine.replicas) < 2:
        return "a second replica to transfer to"
    if screening.engine.kind in ("sglang", "llama-cpp") and not screening.request.salt:
        return "a cache salt: the salt control needs one, and the declaration sends none"
    return None


def _bodies(task: Task) -> tuple[service_plan.ServicePlan, service_bodies.Bodies]:
    plan = service_plan.service_plan(task.screening, task.composition)
    bodies = service_bodies.build_bodies(
        task.screening,
        plan,
        cache=task.fixtures_cache,
        root=task.root,
        progress=lambda done, total: task.on_step("building fixtures", done, total),
    )
    return plan, bodies


def _words(error: HarnessError) -> str:
    return error.message.splitlines()[0]


def _about(error: HarnessError) -> Mapping[str, Any]:
    log = getattr(error, "log_tail", None)
    return {"phase": getattr(error, "phase", None), "log_tail": log, "hint": error.hint}


def _env(task: Task) -> dict[str, str]:
    """The children find this package from any folder and under any interpreter."""
    return {**os.environ, "PYTHONPATH": str(task.root)}


def utc() -> str:
    """Wall time, a label."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
