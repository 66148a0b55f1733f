"""What `kvabba validate` had found on the sharing arms when the run began, as run.json recorded it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.model.stored import StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLine:
    """One layer of one arm."""

    number: int
    layer: str
    status: str
    words: str
    at_utc: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmValidation:
    """One arm: how the gate decided, and its layers."""

    arm: str
    unvalidated: bool
    sentence: str
    fingerprint: str | None
    layers: tuple[LayerLine, ...]


def validations(run: StoredRun) -> tuple[ArmValidation, ...]:
    """Per sharing arm; empty where no arm shares its cache, or where the run is older than the gate."""
    recorded = run.header.get("validation")
    arms = recorded.get("arms") if isinstance(recorded, Mapping) else None
    return tuple(_arm(name, found) for name, found in arms.items()) if isinstance(arms, Mapping) else ()


def _arm(name: str, found: Mapping[str, Any]) -> ArmValidation:
    decision = found.get("decision") or {}
    unvalidated = bool(decision.get("unvalidated"))
    standing = "started unvalidated" if unvalidated else "validated before the start"
    digest = found.get("fingerprint_digest")
    return ArmValidation(
        arm=name,
        unvalidated=unvalidated,
        sentence=f"Arm {name} was {standing}: {decision.get('reason', 'no reason recorded')}.",
        fingerprint=str(digest)[:16] if digest else None,
        layers=tuple(_line(row) for row in found.get("rows") or ()),
    )


def _line(row: Mapping[str, Any]) -> LayerLine:
    return LayerLine(
        number=int(row["number"]),
        layer=str(row["layer"]).replace("_", " "),
        status=str(row["status"]),
        words=str(row.get("missing") or row.get("summary") or ""),
        at_utc=row.get("at_utc"),
    )
