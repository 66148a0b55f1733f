"""Command lines of the simulated replica and the simulated cache service (`python -m harness.sim`)."""

from __future__ import annotations

import sys

from harness.engines.command import Command, Options, compact_json
from harness.model.screening import Arm, EngineSpec, ReplicaSpec, ServiceSpec


def replica(engine: EngineSpec, _replica: ReplicaSpec, arm: Arm) -> Command:
    """A simulated replica; what expectations are computed from is handed over, so that it is declared only once.

    Replicas share token ids through a folder: else the receiver of a cross request would tokenise a prompt of 128k
    tokens (about 50 ms) inside a deadline that a small time scale makes shorter than that.
    """
    settings, _ = _settings(engine)
    declared = {**settings, "block_size": engine.block_size, "external_queries_count": engine.external_queries}
    argv = (
        sys.executable, "-m", "harness.sim", "replica", "--host", "{host}", "--port", "{port}",
        "--model", "{model}", "--tokenizer", "{tokenizer}", "--token-memo", "{root}/.cache/sim-tokens",
        "--settings", compact_json(declared), *arm.args,
    )  # fmt: skip
    return Command(argv=argv)


def cache(engine: EngineSpec, _service: ServiceSpec) -> Command:
    """The simulated cache service; the chunk size is the declared one."""
    _, settings = _settings(engine)
    argv = (
        sys.executable, "-m", "harness.sim", "cache", "--host", "{host}", "--port", "{port}",
        "--settings", compact_json({**settings, "chunk_size": engine.chunk_size}),
    )  # fmt: skip
    return Command(argv=argv)


def _settings(engine: EngineSpec) -> tuple[dict[str, object], dict[str, object]]:
    options = Options(engine.options, kind="sim")
    settings, cache_settings = options.table("settings"), options.table("cache_settings")
    options.finish()
    return dict(settings), dict(cache_settings)
