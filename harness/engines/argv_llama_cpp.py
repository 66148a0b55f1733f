"""Command line of llama.cpp's server. Built from its documented flags; not run by this project's tests."""

from __future__ import annotations

from harness.engines.command import Command, Options
from harness.model.screening import Arm, EngineSpec, ReplicaSpec


def replica(engine: EngineSpec, replica: ReplicaSpec, arm: Arm) -> Command:
    """A replica with `/metrics` and `/slots` on; an ON arm adds `--slot-save-path` to a folder both replicas see."""
    options = Options(engine.options, kind="llama-cpp")
    server, args, cpus = (
        options.text("server", "llama-server"),
        options.texts("args"),
        options.table("cpus").get(replica.name),
    )
    options.finish()
    argv = (
        *(("taskset", "-c", str(cpus)) if cpus else ()),
        server, "--model", "{model_dir}", "--alias", "{model}", "--host", "{host}", "--port", "{port}",
        "--metrics", "--slots", *args, *arm.args,
    )  # fmt: skip
    return Command(argv=argv)
