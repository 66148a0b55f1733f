"""Runs from a declaration's name: new, resumed, or one block at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from harness import config
from harness.client import calibrate
from harness.engines.events import OnEvent
from harness.engines.events import ignore as ignore_event
from harness.fixtures import obtain
from harness.host import host_facts
from harness.model.errors import ConfigError, Issue
from harness.plan import schedule
from harness.run.clock import SystemClock
from harness.run.context import Pace, Setting
from harness.run.interrupts import interruptible
from harness.run.progress import OnProgress
from harness.run.progress import ignore as ignore_progress
from harness.run.resuming import refuse_unless_resumable, remaining, supersede_half_pairs
from harness.run.screening import run_screening
from harness.store import RunFolder
from harness.wiring.gating import Gated, GatedStage, pass_gate
from harness.wiring.places import Places
from harness.wiring.system import SystemStage, client_settings

if TYPE_CHECKING:
    from harness.fixtures import FixtureSet
    from harness.model.planned import Plan, PlannedBlock
    from harness.model.screening import Screening

_PACKAGES = (
    "kvabba",
    "httpx",
    "h11",
    "httptools",
    "numpy",
    "pyarrow",
    "orjson",
    "tiktoken",
    "transformers",
    "tokenizers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the user asked for beside the declaration, and who listens."""

    resume: str | None = None
    follows: str | None = None
    called: str = ""
    """The declaration as the user named it, for errors that say how to go on."""
    unvalidated: bool = False
    limit: int | None = None
    """Stop after so many blocks and leave the screening open."""
    on_progress: OnProgress = ignore_progress
    on_event: OnEvent = ignore_event
    on_fixture: Callable[[int, int], None] | None = None
    on_folder: Callable[[Path], None] = lambda _path: None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A declaration with its plan and fixtures: everything that exists before a server does."""

    screening: Screening
    plan: Plan
    fixtures: FixtureSet
    gated: Gated
    """Why its sharing arms may run (layer 8 of the validation)."""


def run_named(name: str, places: Places, options: RunOptions) -> Path:
    """Run every block that is left; returns the run's folder. Raises what ended the run early (see run_screening)."""
    options = replace(options, called=name)
    if options.resume is not None:
        return _resume(name, places, options)
    prepared = _prepare(config.load(name), places, options)
    header = _header(prepared, places, options)
    with _create(prepared, places, header) as folder:
        options.on_folder(folder.path)
        _drive_all(prepared, places, options, folder)
    return folder.path


def run_one_block(arm: str, name: str, places: Places, options: RunOptions, *, new: bool = False) -> Path:
    """Run the next block of the open screening, or start a loose block where none is open; returns the folder.

    `new` opens a screening and runs its first block. ConfigError where the next block is another arm's.
    """
    options = replace(options, called=name)
    screening = config.load(name)
    _known_arm(screening, arm)
    if new:
        prepared = _prepare(screening, places, options)
        _demand(arm, prepared.plan.blocks[0], "a new screening")
        with _create(prepared, places, _header(prepared, places, options)) as folder:
            return _step(prepared, places, options, folder, prepared.plan.blocks[0])
    path = open_run(screening, places)
    if path is None:
        return _loose(screening, arm, places, options)
    with RunFolder.open(path) as folder:
        folder.lock()
        prepared = _prepare_again(folder, screening, places, options)
        supersede_half_pairs(folder, prepared.plan, SystemClock().utc(), keep_open_pair=True)
        block = remaining(folder, prepared.plan)[0]
        _demand(arm, block, f"run {folder.run}")
        return _step(prepared, places, options, folder, block)


def open_run(screening: Screening, places: Places) -> Path | None:
    """The newest run of this declaration that still has blocks to run and is driven block by block."""
    for path in reversed(places.runs(screening.name)):
        header = RunFolder.open(path).header()
        if header.get("status") == "open" and header.get("declaration_digest") == screening.digest:
            return path
    return None


def _resume(name: str, places: Places, options: RunOptions) -> Path:
    screening = config.load(name)
    with RunFolder.open(places.run_folder(screening.name, str(options.resume))) as folder:
        folder.lock()
        refuse_unless_resumable(folder, screening.digest)
        prepared = _prepare_again(folder, screening, places, options)
        options.on_folder(folder.path)
        supersede_half_pairs(folder, prepared.plan, SystemClock().utc())
        _drive_all(prepared, places, options, folder)
    return folder.path


def _drive_all(prepared: _Prepared, places: Places, options: RunOptions, folder: RunFolder) -> None:
    left = remaining(folder, prepared.plan)
    now = left[: options.limit]
    _drive(prepared, places, options, folder, now, last="complete" if now == left else "open")


def _loose(screening: Screening, arm: str, places: Places, options: RunOptions) -> Path:
    prepared = _prepare(screening, places, options, arms=(arm,))
    block = next(block for block in prepared.plan.blocks if block.arm == arm)
    header = _header(prepared, places, options)
    with _create(prepared, places, header, loose=True) as folder:
        options.on_folder(folder.path)
        _drive(prepared, places, options, folder, [block])
    return folder.path


def _step(prepared: _Prepared, places: Places, options: RunOptions, folder: RunFolder, block: PlannedBlock) -> Path:
    options.on_folder(folder.path)
    last = "complete" if len(remaining(folder, prepared.plan)) == 1 else "open"
    _drive(prepared, places, options, folder, [block], last=last)
    return folder.path


def _prepare(
    screening: Screening, places: Places, options: RunOptions, *, arms: Sequence[str] | None = None
) -> _Prepared:
    """Plan, gate and fixtures; EngineError where the gate is closed. `arms`: those that will run, default all."""
    plan = schedule(screening)
    gated = pass_gate(
        screening, arms or screening.order, places, unvalidated=options.unvalidated, on_event=options.on_event
    )
    fixtures = obtain(screening, plan, cache=places.fixtures_cache, progress=options.on_fixture, root=places.root)
    return _Prepared(screening=screening, plan=plan, fixtures=fixtures, gated=gated)


def _prepare_again(folder: RunFolder, screening: Screening, places: Places, options: RunOptions) -> _Prepared:
    """For a run that goes on: the gate is asked again, and a run that once was unvalidated stays so."""
    header = folder.header()
    insisted = options.unvalidated or bool((header.get("options") or {}).get("unvalidated"))
    prepared = _prepare(screening, places, replace(options, unvalidated=insisted))
    unvalidated = bool(header.get("unvalidated")) or prepared.gated.unvalidated
    folder.amend(validation=prepared.gated.header(), unvalidated=unvalidated)
    return prepared


def _create(prepared: _Prepared, places: Places, header: Mapping[str, Any], *, loose: bool = False) -> RunFolder:
    label = SystemClock().utc().replace(":", "").replace("-", "").replace("T", "-")[:15]
    declaration = config.to_json(prepared.screening)
    return RunFolder.create(
        places.results, prepared.screening.name, label, header=header, declaration=declaration, loose=loose
    )


def _drive(
    prepared: _Prepared,
    places: Places,
    options: RunOptions,
    folder: RunFolder,
    blocks: Sequence[PlannedBlock],
    *,
    last: str = "complete",
) -> None:
    """Run the blocks under the folder's lock."""
    clock = SystemClock()
    total = sum(len(block.warmups) + len(block.requests) for block in blocks)
    pace = Pace(clock=clock, total=total, blocks=len(prepared.plan.blocks), on_progress=options.on_progress)
    setting = Setting(
        screening=prepared.screening,
        plan=prepared.plan,
        fixtures=prepared.fixtures,
        stage=GatedStage(SystemStage(prepared.screening, root=places.root, on_event=options.on_event), prepared.gated),
        clock=clock,
        folder=folder,
        pace=pace,
        host=dict(folder.header().get("host") or {}),
    )
    again = f"kvabba run {options.called} --resume {folder.run}"
    asyncio.run(_main(setting, blocks, last, f"Go on with `{again}`; the half-done pair is rerun whole."))


async def _main(setting: Setting, blocks: Sequence[PlannedBlock], last: str, hint: str) -> None:
    async with interruptible(hint):
        if "client_calibration" not in setting.folder.header():
            bar = await calibrate(client_settings(setting.screening))
            setting.folder.amend(client_calibration=bar.as_dict())
        await run_screening(setting, blocks, last=last)


def _header(prepared: _Prepared, places: Places, options: RunOptions) -> dict[str, Any]:
    screening = prepared.screening
    return {
        "screening": screening.name,
        "description": screening.description,
        "declaration_digest": screening.digest,
        "plan_digest": prepared.plan.digest,
        "status": "open",
        "started_utc": SystemClock().utc(),
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}},
        **_host(),
        "fixtures": dict(prepared.fixtures.facts),
        "options": {"unvalidated": options.unvalidated},
        "unvalidated": prepared.gated.unvalidated,
        "validation": prepared.gated.header(),
        "predecessor": _predecessor(screening, places, options.follows),
    }


def _host() -> dict[str, Any]:
    """`host`: what the machine is; `host_state`: what it was doing when the run began."""
    facts = dict(host_facts())
    memory, gpus = dict(facts["memory"]), [dict(gpu) for gpu in facts["gpus"]]
    state: dict[str, Any] = {"load": facts.pop("load"), "memory_available": memory.pop("available", None)}
    state["gpus"] = [{name: gpu.pop(name) for name in ("memory_used", "utilization_percent")} for gpu in gpus]
    return {"host": {**facts, "memory": memory, "gpus": gpus}, "host_state": state}


def _predecessor(screening: Screening, places: Places, follows: str | None) -> dict[str, Any] | None:
    """The voided run that this one repeats; ConfigError where there is none of that id."""
    if follows is None:
        return None
    folder = RunFolder.open(places.run_folder(screening.name, follows))
    status = folder.header().get("status")
    if status != "void":
        issue = Issue(path="follows", message=f"run {folder.run} is {status}, not void", allowed="a voided run")
        raise ConfigError(str(folder.path), [issue])
    reasons = [orjson.loads(path.read_bytes()) for path in sorted(folder.path.glob("excluded/*/reason.json"))]
    return {
        "run": folder.run,
        "status": status,
        "exit_code": folder.header().get("exit_code"),
        "excluded": reasons,
        "predecessor": folder.header().get("predecessor"),
    }


def _known_arm(screening: Screening, arm: str) -> None:
    names = [known.name for known in screening.arms]
    if arm not in names:
        raise ConfigError(screening.name, [Issue(path="arms", message=f"no arm {arm!r}", allowed=", ".join(names))])


def _demand(arm: str, block: PlannedBlock, where: str) -> None:
    """The order is the experiment: a block out of turn would break the counterbalance."""
    if block.arm != arm:
        words = f"the next block of {where} is block {block.position}, arm {block.arm}: arm {arm} is out of turn"
        raise ConfigError("order", [Issue(path=f"order[{block.position - 1}]", message=words, allowed=block.arm)])
