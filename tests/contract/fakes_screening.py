"""Declarations around the fake engine, built by hand."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.model.screening import (
    Arm,
    ChecksSpec,
    Commands,
    EngineSpec,
    ReplicaSpec,
    RequestSpec,
    Screening,
    ServiceSpec,
    Workloads,
)

FAKE = Path(__file__).with_name("fakes_engine.py")
OFF = Arm(name="off", reach="none")
ON = Arm(name="on", reach="all", services=("pool",))


def argv(*extra: str, model: str = "fake") -> tuple[str, ...]:
    return (sys.executable, str(FAKE), "--host", "{host}", "--port", "{port}", "--model", model, *extra)


def replica(
    name: str = "A",
    *extra: str,
    url: str = "http://127.0.0.1:0",
    model: str = "fake",
    env: dict[str, str] | None = None,
) -> ReplicaSpec:
    return ReplicaSpec(name=name, url=url, argv=argv(*extra, model=model), env=env or {})


def remote(name: str, url: str, commands: Commands) -> ReplicaSpec:
    return ReplicaSpec(name=name, url=url, commands=commands)


def pool(*extra: str) -> ServiceSpec:
    return ServiceSpec(
        name="pool",
        kind="command",
        url="http://127.0.0.1:0",
        argv=argv(*extra),
        start_timeout_s=60,
        stop_timeout_s=10,
    )


def screening(
    *replicas: ReplicaSpec,
    services: tuple[ServiceSpec, ...] = (),
    patterns: tuple[str, ...] = (),
    start_timeout_s: float = 60.0,
    stop_timeout_s: float = 10.0,
    env: dict[str, str] | None = None,
) -> Screening:
    spec = EngineSpec(
        kind="remote",
        model="fake",
        tokenizer="fixtures/tokenizers/sim",
        replicas=replicas,
        block_size=32,
        chunk_size=256,
        start_timeout_s=start_timeout_s,
        stop_timeout_s=stop_timeout_s,
        void_log_patterns=patterns,
        env=env or {},
    )
    return Screening(
        name="fake",
        description="fake",
        engine=spec,
        arms=(OFF, ON),
        services=services,
        factor=(),
        order=("off", "on"),
        baseline="off",
        seed=1,
        request=RequestSpec(),
        workloads=Workloads(),
        checks=ChecksSpec(),
        digest="0",
    )
