"""Layer 8: no screening starts on an arm that shares its cache before that very set-up was validated.

A simulated engine validates itself in seconds with the smallest set, unless its declaration switches faults on: such a
run is there to show what the harness catches, and its report says that it is unvalidated.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import config
from harness.engines.events import OnEvent
from harness.engines.events import ignore as ignore_event
from harness.model.errors import EngineError
from harness.probes import gate
from harness.probes.evidence import Validation, latest_of, load_validation, rows, save
from harness.probes.identity import identify, sharing_arms
from harness.probes.service_plan import SMALLEST
from harness.probes.suite import HTTP_LAYERS
from harness.wiring.validation import ValidateOptions, validate_arm

if TYPE_CHECKING:
    from harness.model.screening import Arm, Screening
    from harness.run.ports import Live, Stage
    from harness.wiring.places import Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """What the gate found, per arm that shares its cache and is about to run."""

    decisions: Mapping[str, gate.GateDecision] = field(default_factory=dict)
    validations: Mapping[str, Validation] = field(default_factory=dict)
    """The validations that opened the gate."""

    @property
    def unvalidated(self) -> bool:
        """True where any arm starts without one: the report then carries the word."""
        return any(decision.unvalidated for decision in self.decisions.values())

    def header(self) -> dict[str, Any]:
        """`validation` of run.json: decision and layers per arm."""
        return {
            "unvalidated": self.unvalidated,
            "arms": {name: self._arm(name, decision) for name, decision in self.decisions.items()},
        }

    def _arm(self, name: str, decision: gate.GateDecision) -> dict[str, Any]:
        known = self.validations.get(name)
        found: dict[str, Any] = {"decision": decision.to_json(), "fingerprint_digest": None, "set": None, "rows": []}
        if known is None:
            return found
        service = known.layers.get("service")
        return {
            **found,
            "fingerprint_digest": known.fingerprint_digest,
            "set": service.facts.get("set") if service else None,
            "rows": rows(known),
        }


def pass_gate(
    screening: Screening,
    arms: Collection[str],
    places: Places,
    *,
    unvalidated: bool,
    on_event: OnEvent = ignore_event,
) -> Gated:
    """Decide for every sharing arm among `arms`; EngineError (exit code 3) where one may not start."""
    decisions, validations = {}, {}
    for arm in sharing_arms(screening):
        if arm.name not in arms:
            continue
        digest, known = _known(screening, arm, places)
        if known is None and screening.engine.kind == "sim" and not unvalidated:
            if _has_faults(screening):
                decisions[arm.name] = _faulty()
                continue
            known = _validate_simulated(screening, arm, places, on_event)
        shown = known or latest_of(places.results, screening.name, arm.name)
        decision = decisions[arm.name] = gate.decide(shown, digest, unvalidated=unvalidated)
        gate.require(decision, screening=screening.name, arm=arm.name)
        if shown is not None and not decision.unvalidated:
            validations[arm.name] = shown
    return Gated(decisions=decisions, validations=validations)


def may_start(name: str, places: Places) -> bool:
    """True where every sharing arm of the declaration has a validation that opens the gate; nothing is started."""
    screening = config.load(name)
    for arm in sharing_arms(screening):
        digest, known = _known(screening, arm, places)
        if not gate.decide(known, digest, unvalidated=False).allowed:
            return False
    return True


class GatedStage:
    """A `Stage` that lets an arm run only if its processes are those that were validated."""

    def __init__(self, stage: Stage, gated: Gated) -> None:
        self._stage, self._gated = stage, gated

    @asynccontextmanager
    async def start(self, arm: Arm, logs: Path) -> AsyncIterator[Live]:
        """See `Stage`; EngineError, phase `gate`, where a process differs from the validated one."""
        async with self._stage.start(arm, logs) as live:
            known = self._gated.validations.get(arm.name)
            changed = gate.changed_processes(known, live.fingerprints) if known is not None else ()
            if changed:
                raise EngineError(
                    f"arm {arm.name}: {', '.join(changed)} ran with another fingerprint when it was validated",
                    phase="gate",
                    hint="Run `kvabba validate` again on this machine, or start with --unvalidated.",
                )
            yield live


def _known(screening: Screening, arm: Arm, places: Places) -> tuple[str, Validation | None]:
    with tempfile.TemporaryDirectory(prefix="kvabba-gate-") as logs:
        digest = identify(screening, arm, root=places.root, log_dir=Path(logs)).digest
    known = load_validation(places.results, digest)
    if known is None and screening.engine.kind == "sim":
        # Simulated engines differ by their source alone, so that any results folder of this checkout may use it.
        known = load_validation(_kept(places), digest)
        if known is not None:
            save(places.results, known, {})
    return digest, known


def _validate_simulated(screening: Screening, arm: Arm, places: Places, on_event: OnEvent) -> Validation:
    options = ValidateOptions(composition=SMALLEST, layers=HTTP_LAYERS, on_event=on_event)
    done = validate_arm(screening, arm, places, options)
    if not done.validation.failed:
        save(_kept(places), done.validation, {})
    return done.validation


def _kept(places: Places) -> Path:
    return places.fixtures_cache.parent


def _has_faults(screening: Screening) -> bool:
    options = screening.engine.options
    return any(options.get(table, {}).get("faults") for table in ("settings", "cache_settings"))


def _faulty() -> gate.GateDecision:
    return gate.GateDecision(
        allowed=True,
        standing="missing",
        unvalidated=True,
        reason="the declaration switches faults of the simulated engine on",
    )
