"""Layer 8, the gate: whether a screening may start on an arm that shares its cache. Pure.

On exactly this fingerprint layer 5 must have passed, layer 6 must have run, and no layer may have failed. What cannot
run (copies on a CPU engine, provenance without a manifest, tool calls that the engine was started without) does not
close the gate; the report names it as not validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.model.errors import EngineError
from harness.probes.evidence import Validation
from harness.probes.results import LayerName

REQUIRED_LAYER: LayerName = "service"
ASKED_LAYER: LayerName = "protocol"

Standing = Literal["validated", "missing", "failed", "incomplete", "other fingerprint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """`allowed` with its reason in words. `unvalidated` is the word that the report must then carry."""

    allowed: bool
    standing: Standing
    unvalidated: bool
    reason: str
    not_validated: tuple[LayerName, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for a run's header."""
        return {name: getattr(self, name) for name in self.__slots__}


def decide(validation: Validation | None, fingerprint_digest: str, *, unvalidated: bool) -> GateDecision:
    """The decision for one arm; `unvalidated` is what the user said, and only counts where the gate is closed."""
    standing, reason = _standing(validation, fingerprint_digest)
    valid = standing == "validated"
    return GateDecision(
        allowed=valid or unvalidated,
        standing=standing,
        unvalidated=not valid,
        reason=reason,
        not_validated=validation.not_validated if validation is not None and valid else (),
    )


def require(decision: GateDecision, *, screening: str, arm: str) -> None:
    """EngineError (phase `gate`, exit code 3: nothing measured) where the gate is closed."""
    if not decision.allowed:
        raise EngineError(
            f"arm {arm} of {screening} is not validated: {decision.reason}",
            phase="gate",
            hint=f"Run `kvabba validate {screening}` first, or start with --unvalidated: the report then says so.",
        )


def changed_processes(validation: Validation, running: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Processes that run now with another fingerprint than while they were validated; unknown ones do not count."""
    return tuple(
        name
        for name, known in validation.processes.items()
        if name in running and running[name].get("fingerprint_digest") != known
    )


def _standing(validation: Validation | None, fingerprint_digest: str) -> tuple[Standing, str]:
    if validation is None:
        return "missing", "there is no validation of this set-up"
    if validation.fingerprint_digest != fingerprint_digest:
        return "other fingerprint", f"the last validation is of another set-up ({validation.fingerprint_digest[:12]})"
    if validation.failed:
        words = "; ".join(validation.layers[name].summary for name in validation.failed)
        return "failed", f"its validation failed: {words}"
    lacking = [REQUIRED_LAYER] if REQUIRED_LAYER not in validation.passed else []
    lacking += [ASKED_LAYER] if ASKED_LAYER not in validation.layers else []
    if lacking:
        return "incomplete", f"not validated: {', '.join(lacking)}"
    return "validated", f"passed: {', '.join(validation.passed)}"
