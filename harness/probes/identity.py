"""Which set-up a validation belongs to: what can be known about an arm before anything of it is started.

The digest is over command lines and environments as declared (before ports and paths are put in), the environment that
would be inherited and matters, package versions beside the interpreter, names and sizes of the model's files, and for
the simulator its source. It names the folder of a validation; the fingerprints of the processes themselves, which need
a start, are kept inside and compared again when a block of the arm starts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import __version__
from harness.engines.fingerprint import packages, relevant_env
from harness.engines.layout import Layout, ProcessPlan, lay_out
from harness.model.screening import Arm, Screening
from harness.probes.provenance import MANIFEST_NAME

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmIdentity:
    """One arm of one declaration as it would be started now."""

    digest: str
    facts: Mapping[str, Any]
    layout: Layout


def identify(screening: Screening, arm: Arm, *, root: Path, log_dir: Path) -> ArmIdentity:
    """Lay the arm out (nothing is started) and digest it; EngineError or ConfigError where a part is missing."""
    layout = lay_out(screening, arm, project_root=root, log_dir=log_dir)
    engine = screening.engine
    facts: dict[str, Any] = {
        "harness": __version__,
        "engine": engine.kind,
        "model": engine.model,
        "block_size": engine.block_size,
        "chunk_size": engine.chunk_size,
        "reach": arm.reach,
        "processes": {plan.name: _process(plan) for plan in layout.all},
        "environment": relevant_env(os.environ),
        "model_files": _model_files(root / engine.model_dir) if engine.model_dir else None,
        "simulator": _source_digest() if engine.kind == "sim" else None,
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return ArmIdentity(digest=hashlib.sha256(text.encode()).hexdigest(), facts=json.loads(text), layout=layout)


def sharing_arms(screening: Screening) -> tuple[Arm, ...]:
    """Arms of the order that keep state outside a replica's own prefix cache: those that must be validated."""
    return tuple(arm for arm in screening.arms if arm.name in screening.order and arm.reach != "none")


def cache_flags(identity: ArmIdentity) -> tuple[str, ...]:
    """The command line of the arm's cache services: what selects the allocator and the pool's size."""
    return tuple(word for plan in identity.layout.services for word in plan.argv or ())


def pool_bytes(flags: tuple[str, ...]) -> int | None:
    """LMCache's `--l1-size-gb` in bytes (it counts GiB), None where none is declared."""
    for position, word in enumerate(flags):
        flag, _, value = word.partition("=")
        if flag == "--l1-size-gb":
            return round(float(value or flags[position + 1]) * GIB)
    return None


def _process(plan: ProcessPlan) -> dict[str, Any]:
    template = plan.template
    return {
        "kind": plan.kind,
        "argv": None if template is None else [Path(template.argv[0]).name, *template.argv[1:]],
        "env": None if template is None else dict(template.env),
        "packages": packages(plan.argv),
        "commands": None if plan.commands is None else [list(plan.commands.start), list(plan.commands.stop)],
    }


def _model_files(folder: Path) -> list[list[Any]] | None:
    if not folder.is_dir():
        return None
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_NAME)
    return sorted([path.relative_to(folder).as_posix(), path.stat().st_size] for path in files)


def _source_digest() -> str:
    """The simulator is part of the checkout and has no version of its own."""
    state = hashlib.sha256()
    for path in sorted((Path(__file__).parents[1] / "sim").rglob("*.py")):
        state.update(path.name.encode() + b"\n" + path.read_bytes())
    return state.hexdigest()
