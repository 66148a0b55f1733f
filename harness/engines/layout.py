"""From a declaration to the processes of one arm: addresses chosen, placeholders replaced, nothing started yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.engines import argv as builders
from harness.engines import placeholders, ports
from harness.engines.command import Command
from harness.engines.ports import Address
from harness.model.errors import EngineError, Issue
from harness.model.screening import Arm, Commands, EngineSpec, ReplicaSpec, Screening, ServiceSpec

Role = Literal["replica", "service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process of an arm, ready to be started. `argv` None: driven by `commands`, or running already (neither)."""

    name: str
    role: Role
    kind: str
    address: Address
    health_path: str
    model: str | None
    """Model id that `/v1/models` must list; None for services."""
    template: Command | None
    """Command line and environment before placeholders were replaced."""
    argv: tuple[str, ...] | None
    commands: Commands | None
    env: Mapping[str, str]
    """What is added to the inherited environment."""
    cwd: Path
    start_timeout_s: float
    stop_timeout_s: float

    @property
    def url(self) -> str:
        """Base URL with the port that was chosen."""
        return self.address.url


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All processes of one arm, services first: the order of starting."""

    services: tuple[ProcessPlan, ...]
    replicas: tuple[ProcessPlan, ...]

    @property
    def all(self) -> tuple[ProcessPlan, ...]:
        """Services, then replicas."""
        return (*self.services, *self.replicas)


def lay_out(screening: Screening, arm: Arm, *, project_root: Path, log_dir: Path) -> Layout:
    """Choose ports for every URL with port 0 and replace placeholders; one ConfigError with everything wrong."""
    engine = screening.engine
    specs: tuple[ServiceSpec | ReplicaSpec, ...] = (
        *(screening.service(name) for name in arm.services),
        *engine.replicas,
    )
    issues: list[Issue] = []
    addresses = _addresses(specs, issues)
    placeholders.raise_if_any(issues, source="declaration")
    common = _common_values(engine, project_root, log_dir)
    rpc_ports = ports.choose_free(len(specs))
    values: dict[str, str] = {}
    for spec, address, rpc_port in zip(specs, addresses, rpc_ports, strict=True):
        if isinstance(spec, ServiceSpec):
            values |= {f"service.{spec.name}.{key}": text for key, text in _own_values(address, rpc_port).items()}
    plans = []
    for spec, address, rpc_port in zip(specs, addresses, rpc_ports, strict=True):
        own = {**values, **common, **_own_values(address, rpc_port), "name": spec.name}
        plan = _service(engine, spec) if isinstance(spec, ServiceSpec) else _replica(engine, spec, arm)
        plans.append(_expanded(replace(plan, address=address, cwd=project_root), own, issues))
    placeholders.raise_if_any(issues, source="declaration")
    return Layout(
        services=tuple(plan for plan in plans if plan.role == "service"),
        replicas=tuple(plan for plan in plans if plan.role == "replica"),
    )


_UNSET = Address(scheme="http", host=ports.LOOPBACK, port=0)


def _replica(engine: EngineSpec, spec: ReplicaSpec, arm: Arm) -> ProcessPlan:
    command = builders.replica_command(engine, spec, arm)
    # The arm comes last: what it declares is the factor and must not be shadowed by a replica's own setting.
    env = {**(command.env if command else {}), **engine.env, **spec.env, **arm.env}
    return ProcessPlan(
        name=spec.name,
        role="replica",
        kind=engine.kind,
        address=_UNSET,
        health_path="/health",
        model=engine.model,
        template=None if command is None else Command(argv=command.argv, env=env),
        argv=None if command is None else command.argv,
        commands=spec.commands,
        env=env,
        cwd=Path(),
        start_timeout_s=engine.start_timeout_s,
        stop_timeout_s=engine.stop_timeout_s,
    )


def _service(engine: EngineSpec, spec: ServiceSpec) -> ProcessPlan:
    command = builders.service_command(engine, spec)
    env = {**(command.env if command else {}), **spec.env}
    return ProcessPlan(
        name=spec.name,
        role="service",
        kind=spec.kind,
        address=_UNSET,
        health_path=spec.health_path,
        model=None,
        template=None if command is None else Command(argv=command.argv, env=env),
        argv=None if command is None else command.argv,
        commands=spec.commands,
        env=env,
        cwd=Path(),
        start_timeout_s=spec.start_timeout_s,
        stop_timeout_s=spec.stop_timeout_s,
    )


def _expanded(plan: ProcessPlan, values: Mapping[str, str], issues: list[Issue]) -> ProcessPlan:
    where = f"{plan.role}.{plan.name}"
    argv = plan.argv and placeholders.expand_all(plan.argv, values, path=f"{where}.argv", issues=issues)
    commands = plan.commands and Commands(
        start=placeholders.expand_all(plan.commands.start, values, path=f"{where}.commands.start", issues=issues),
        stop=placeholders.expand_all(plan.commands.stop, values, path=f"{where}.commands.stop", issues=issues),
        status=placeholders.expand_all(plan.commands.status, values, path=f"{where}.commands.status", issues=issues),
    )
    env = placeholders.expand_env(plan.env, values, path=f"{where}.env", issues=issues)
    return replace(plan, argv=argv, commands=commands, env=env)


def _addresses(specs: tuple[ServiceSpec | ReplicaSpec, ...], issues: list[Issue]) -> tuple[Address, ...]:
    parsed = []
    for spec in specs:
        try:
            parsed.append(ports.parse(spec.url))
        except ValueError as error:
            issues.append(Issue(path=f"{spec.name}.url", message=str(error), allowed="http://HOST:PORT"))
    unset = [index for index, address in enumerate(parsed) if address.port == 0]
    for index, port in zip(unset, ports.choose_free(len(unset)), strict=True):
        parsed[index] = replace(parsed[index], port=port)
    return tuple(parsed)


def _own_values(address: Address, rpc_port: int) -> dict[str, str]:
    return {"url": address.url, "host": address.host, "port": str(address.port), "rpc_port": str(rpc_port)}


def _common_values(engine: EngineSpec, project_root: Path, log_dir: Path) -> dict[str, str]:
    python = interpreter(engine, project_root)
    return {
        "python": str(python),
        "bin": str(python.parent),
        "path": os.environ.get("PATH", os.defpath),
        "root": str(project_root),
        "log_dir": str(log_dir),
        "model": engine.model,
        "model_dir": engine.model_dir or engine.model,
        "tokenizer": engine.tokenizer,
    }


def interpreter(engine: EngineSpec, project_root: Path) -> Path:
    """The declared `options.python` (not resolved: a virtual environment is found through its link), or our own."""
    declared = engine.options.get("python")
    if not declared:
        return Path(sys.executable)
    python = Path(os.path.abspath(project_root / str(declared)))  # noqa: PTH100 - resolve() would leave the environment
    if not python.exists():
        raise EngineError(
            f"engine.options.python: {declared} does not exist",
            phase="missing_part",
            hint="Install the engine into its own environment first (`make setup ENGINE=…`), or correct the path.",
        )
    return python
