"""Which builder makes the command line of a replica or service."""

from __future__ import annotations

from collections.abc import Callable

from harness.engines import argv_llama_cpp, argv_lmcache, argv_sglang, argv_sim, argv_vllm
from harness.engines.command import Command
from harness.model.errors import ConfigError, Issue
from harness.model.screening import Arm, EngineSpec, ReplicaSpec, ServiceSpec

_REPLICAS: dict[str, Callable[[EngineSpec, ReplicaSpec, Arm], Command]] = {
    "sim": argv_sim.replica,
    "vllm": argv_vllm.gpu_replica,
    "vllm-cpu": argv_vllm.cpu_replica,
    "sglang": argv_sglang.replica,
    "llama-cpp": argv_llama_cpp.replica,
}
_SERVICES: dict[str, Callable[[EngineSpec, ServiceSpec], Command]] = {
    "sim-cache": argv_sim.cache,
    "lmcache": argv_lmcache.server,
}


def replica_command(engine: EngineSpec, replica: ReplicaSpec, arm: Arm) -> Command | None:
    """Explicit `argv` first, then the kind's builder; None for a replica that is not a local process."""
    if replica.argv is not None:
        return Command(argv=(*replica.argv, *arm.args))
    if replica.commands is not None or engine.kind == "remote":
        return None
    return _REPLICAS[engine.kind](engine, replica, arm)


def service_command(engine: EngineSpec, service: ServiceSpec) -> Command | None:
    """The same for a service; a `command` service without `argv` and without `commands` is an error."""
    if service.argv is not None:
        return Command(argv=service.argv)
    if service.commands is not None:
        return None
    builder = _SERVICES.get(service.kind)
    if builder is None:
        issue = Issue(path=f"services.{service.name}", message=f"kind {service.kind!r} needs argv or commands")
        raise ConfigError("services", [issue])
    return builder(engine, service)
