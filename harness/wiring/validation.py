"""`kvabba validate` and the gate before a screening: picks the real parts for `harness.probes`."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import config
from harness.engines.events import OnEvent
from harness.engines.events import ignore as ignore_event
from harness.engines.layout import interpreter
from harness.model.errors import ConfigError, EngineError, Issue
from harness.probes import suite
from harness.probes.evidence import Validation, load_validation, save
from harness.probes.identity import ArmIdentity, identify, sharing_arms
from harness.probes.results import LAYERS, LayerName, LayerResult, not_validated
from harness.probes.service_plan import FULL, Composition
from harness.probes.suite import OnLayer
from harness.probes.system import Message, OnStep, Snapshots, ignore_step
from harness.run.interrupts import interruptible
from harness.run.ports import Outgoing
from harness.wiring.places import Places
from harness.wiring.system import SystemLive, SystemStage

if TYPE_CHECKING:
    from harness.model.counting import WindowCounters
    from harness.model.findings import Finding
    from harness.model.observation import Observation
    from harness.model.screening import Arm, Screening


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions:
    """What the user asked for, and who listens."""

    composition: Composition = FULL
    layers: Collection[LayerName] = LAYERS
    pool_gib: float | None = None
    on_layer: OnLayer = lambda _name, _result: None
    on_step: OnStep = ignore_step
    on_event: OnEvent = ignore_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """One arm's validation after this run, and where its evidence lies (None: its set-up could not be identified)."""

    validation: Validation
    folder: Path | None


class LiveSystem:
    """`harness.probes.system.System` over a started arm."""

    def __init__(self, live: SystemLive) -> None:
        self._live = live

    @property
    def urls(self) -> Mapping[str, str]:
        """Replica name → base URL."""
        return self._live.urls

    @property
    def pools(self) -> tuple[str, ...]:
        """Cache services that are read."""
        return self._live.pools

    @property
    def fingerprints(self) -> Mapping[str, Mapping[str, Any]]:
        """Process name → fingerprint."""
        return self._live.fingerprints

    async def send(self, message: Message) -> Observation:
        """Send and decode."""
        return await self._live.send(
            Outgoing(
                key=message.key,
                replica=message.replica,
                body=message.body,
                sha256=message.sha256,
                request_id=message.request_id,
                time_scale=message.time_scale,
                timeout_s=message.timeout_s,
            )
        )

    async def snapshot(self) -> Snapshots:
        """Scrape everything."""
        return await self._live.snapshot()

    async def rest(self, before: Snapshots, sent: Mapping[str, int], chunks: int) -> Sequence[Finding]:
        """The same barriers as between measured requests."""
        return [
            *await self._live.settle(before, sent),
            *await self._live.quiesce(),
            *await self._live.drain(before, chunks),
        ]

    def difference(self, before: Snapshots, after: Snapshots) -> WindowCounters:
        """Increments between two scrapes."""
        return self._live.difference(before, after)

    def health_findings(self) -> list[Finding]:
        """Processes and their logs."""
        return self._live.health_findings()


def validate_named(name: str, places: Places, options: ValidateOptions, *, arm: str | None = None) -> list[Validated]:
    """Validate every sharing arm of a declaration (or the named one); ConfigError where it has none."""
    screening = config.load(name)
    arms = [one for one in sharing_arms(screening) if arm in (None, one.name)]
    if not arms:
        known = ", ".join(one.name for one in sharing_arms(screening)) or "none of this declaration"
        message = f"no arm {arm!r} that shares its cache" if arm else "no arm shares its cache: nothing to validate"
        raise ConfigError(screening.name, [Issue(path="arms", message=message, allowed=known)])
    return [validate_arm(screening, one, places, options) for one in arms]


def validate_arm(screening: Screening, arm: Arm, places: Places, options: ValidateOptions) -> Validated:
    """Run the asked layers on one arm and store what they found."""
    with tempfile.TemporaryDirectory(prefix="kvabba-validate-") as logs:
        try:
            identity = identify(screening, arm, root=places.root, log_dir=Path(logs))
        except EngineError as error:
            return Validated(validation=_unidentified(screening, arm, error, options), folder=None)
        outcome = asyncio.run(_main(_task(screening, arm, identity, places=places, options=options, logs=Path(logs))))
    at = suite.utc()
    validation = Validation(
        fingerprint_digest=identity.digest,
        screening=screening.name,
        arm=arm.name,
        identity=identity.facts,
        layers=outcome.results,
        at_utc=dict.fromkeys(outcome.results, at),
        processes=outcome.processes,
    ).renewed(load_validation(places.results, identity.digest))
    return Validated(validation=validation, folder=save(places.results, validation, outcome.tables))


async def _main(task: suite.Task) -> suite.Outcome:
    async with interruptible("Nothing was stored; run `kvabba validate` again."):
        return await suite.run(task)


def _task(
    screening: Screening, arm: Arm, identity: ArmIdentity, *, places: Places, options: ValidateOptions, logs: Path
) -> suite.Task:
    stage = SystemStage(screening, root=places.root, on_event=options.on_event)

    @asynccontextmanager
    async def open_system() -> AsyncIterator[LiveSystem]:
        async with stage.start(arm, logs) as live:
            yield LiveSystem(live)

    return suite.Task(
        screening=screening,
        arm=arm,
        identity=identity,
        root=places.root,
        python=str(interpreter(screening.engine, places.root)),
        fixtures_cache=places.fixtures_cache,
        open_system=open_system,
        composition=options.composition,
        layers=options.layers,
        pool_gib=options.pool_gib,
        on_layer=options.on_layer,
        on_step=options.on_step,
    )


def _unidentified(screening: Screening, arm: Arm, error: EngineError, options: ValidateOptions) -> Validation:
    """A part is missing already when the arm is laid out: no layer can run, and all say why."""
    results: dict[LayerName, LayerResult] = {
        name: not_validated(name, error.message) for name in LAYERS if name in options.layers
    }
    for name, result in results.items():
        options.on_layer(name, result)
    digest = hashlib.sha256(f"{screening.digest}/{arm.name}/unidentified".encode()).hexdigest()
    return Validation(
        fingerprint_digest=digest,
        screening=screening.name,
        arm=arm.name,
        identity={},
        layers=results,
        at_utc=dict.fromkeys(results, suite.utc()),
    )
