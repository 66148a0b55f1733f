"""Where a screening comes from: what its arms differ in, what ran in each block, on which host, and was it real."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.model.screening import Arm, Screening
from harness.model.stored import StoredRun

_SIMULATED = "simulated"
_LONG = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmField:
    """One field of the declaration that arms may differ in; `values` in the order of the arms."""

    path: str
    values: tuple[str, ...]
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One recorded fact: the same in every block (`common`), or one value a block."""

    path: str
    common: str | None
    per_block: tuple[str, ...]


def simulated(run: StoredRun) -> bool:
    """True when the declaration, or anything that a process said about itself, names a simulated engine."""
    if run.screening.engine.kind == "sim":
        return True
    return any(_says_simulated(block.manifest.get("fingerprints")) for block in run.blocks)


def unvalidated(run: StoredRun) -> bool:
    """True when the run was started with `--unvalidated` (recorded in run.json)."""
    return bool(run.header.get("unvalidated") or _mapping(run.header.get("options")).get("unvalidated"))


def arm_fields(screening: Screening) -> tuple[ArmField, ...]:
    """Every field of the arms side by side, differing ones first."""
    described = [_describe(arm) for arm in screening.arms]
    paths = sorted({path for fields in described for path in fields})
    rows = []
    for path in paths:
        values = tuple(fields.get(path, "") for fields in described)
        rows.append(ArmField(path=path, values=values, differs=len(set(values)) > 1))
    return tuple(sorted(rows, key=lambda row: not row.differs))


def block_facts(run: StoredRun, section: str, *, shown: int) -> tuple[Fact, ...]:
    """`section` of every manifest, flattened, with the values of the first `shown` blocks where blocks differ."""
    flat = [dict(flatten(block.manifest.get(section))) for block in run.blocks]
    paths = list(dict.fromkeys(path for facts in flat for path in facts))
    rows = []
    for path in paths:
        values = tuple(facts.get(path, "") for facts in flat)
        common = values[0] if len(set(values)) == 1 else None
        rows.append(Fact(path=path, common=common, per_block=() if common is not None else values[:shown]))
    return tuple(rows)


def header_facts(run: StoredRun) -> tuple[tuple[str, str], ...]:
    """run.json, flattened, without the log of block manifests (the audit's) and the validation (its own section)."""
    shown = {key: value for key, value in run.header.items() if key not in {"blocks", "block_log", "validation"}}
    return tuple(flatten(shown))


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Nested mappings and lists as `a.b[0].c` → text; an argv stays one line."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from flatten(child, f"{path}.{key}" if path else str(key))
    elif (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and any(isinstance(child, Mapping) for child in value)
    ):
        for index, child in enumerate(value):
            yield from flatten(child, f"{path}[{index}]")
    elif value is not None:
        yield path, _text(value)


def _describe(arm: Arm) -> dict[str, str]:
    fields = {"reach": arm.reach, "args": " ".join(arm.args), "services": " ".join(arm.services)}
    return fields | {f"env.{name}": value for name, value in arm.env.items()}


def _says_simulated(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any((key == _SIMULATED and child is True) or _says_simulated(child) for key, child in value.items())
    if isinstance(value, str):
        return _SIMULATED in value.lower()
    return isinstance(value, Sequence) and any(_says_simulated(child) for child in value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, Sequence):
        text = " ".join(str(item) for item in value)
    else:
        text = json.dumps(value, default=str)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
