"""Command line of SGLang. Built from its documented flags; not run by this project's tests (needs a GPU)."""

from __future__ import annotations

from harness.engines.command import Command, Options
from harness.model.screening import Arm, EngineSpec, ReplicaSpec


def replica(engine: EngineSpec, replica: ReplicaSpec, arm: Arm) -> Command:
    """A replica with metrics and per-request cached tokens on; the hierarchical cache is an arm's business."""
    options = Options(engine.options, kind="sglang")
    options.text("python", "")
    args, cpus = options.texts("args"), options.table("cpus").get(replica.name)
    options.finish()
    argv = (
        *(("taskset", "-c", str(cpus)) if cpus else ()),
        "{python}", "-m", "sglang.launch_server", "--model-path", "{model_dir}", "--served-model-name", "{model}",
        "--host", "{host}", "--port", "{port}", "--page-size", str(engine.block_size), "--enable-metrics",
        "--enable-cache-report", *args, *arm.args,
    )  # fmt: skip
    return Command(argv=argv, env={"HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"})
