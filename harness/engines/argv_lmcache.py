"""Command line of the LMCache server (multi-process mode)."""

from __future__ import annotations

from harness.engines.argv_vllm import OFFLINE_ENV, VllmOptions
from harness.engines.command import Command
from harness.model.screening import EngineSpec, ServiceSpec


def server(engine: EngineSpec, service: ServiceSpec) -> Command:
    """The shared pool. Its HTTP side binds the declared host: left alone, it would bind every interface."""
    options = VllmOptions(engine)
    argv = (
        *options.pinning(service.name), "{bin}/lmcache", "server", "--host", "{host}", "--port", "{rpc_port}",
        "--http-host", "{host}", "--http-port", "{port}", "--chunk-size", str(engine.chunk_size), *options.lmcache_args,
    )  # fmt: skip
    return Command(argv=argv, env=OFFLINE_ENV)
