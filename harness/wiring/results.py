"""What is done with a finished folder: read, audit, report; and two loose blocks as a pair."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from harness import config
from harness.analysis import Effects, Gathered, floors_of, gather, merge
from harness.model.errors import ConfigError, ExitCode, Issue
from harness.plan import schedule
from harness.store import durable, read_run
from harness.store.folder import block_folders

if TYPE_CHECKING:
    from harness.model.findings import Verdict
    from harness.model.planned import Plan
    from harness.model.screening import Screening
    from harness.model.stored import StoredRun


WITHOUT_COUNTERS = 2_000
"""Blocks from which counter tables are not checked again; the verdict says so (`audit.not_rechecked`)."""
BY_CELL = 100
"""Blocks from which summary.json holds one line a cell, not one a matched unit: it would grow by 40 KiB a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A folder with its verdict, and what the same pass over its rows has gathered for the effects."""

    run: StoredRun
    verdict: Verdict
    gathered: Gathered

    @property
    def exit_code(self) -> ExitCode:
        """0 where the verdict is valid, else 1."""
        return ExitCode.OK if self.verdict.status == "valid" else ExitCode.FINDINGS

    def as_json(self) -> dict[str, Any]:
        """audit.json: the verdict and every finding."""
        return {"folder": self.run.path, "run": self.run.run, **asdict(self.verdict)}


def rebuild(declaration: bytes) -> tuple[Screening, Plan]:
    """The screening and its plan, from a folder's stored declaration."""
    screening = config.from_json(declaration)
    return screening, schedule(screening)


def read_folder(path: Path, *, chunks: bool = True) -> StoredRun:
    """Everything a results folder holds; of a large one, or with `chunks=False`, without chunks and counters."""
    with _uncollected():
        return read_run(path, rebuild, chunks=chunks and len(block_folders(path / "blocks")) < WITHOUT_COUNTERS)


def judge(run: StoredRun) -> Judged:
    """Audit what was read, in the one pass over its rows from which effects follow too."""
    with _uncollected():
        gathered = gather(run)
    return Judged(run=run, verdict=gathered.verdict, gathered=gathered)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No cyclic garbage collection: a large plan is a million values that stay, and each collection would walk them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def pair_loose(first: Path, second: Path) -> StoredRun:
    """Two loose blocks of equal declaration and fixtures as one run; ConfigError where they cannot be a pair."""
    runs = [read_folder(path) for path in (first, second)]
    blocks = [block for run in runs for block in run.blocks]
    problems = []
    if any(len(run.blocks) != 1 for run in runs):
        problems.append("each folder must hold exactly one block")
    if runs[0].screening.digest != runs[1].screening.digest:
        problems.append("their declarations differ")
    if len({block.arm for block in blocks}) != len(blocks):
        problems.append(f"both are arm {blocks[0].arm}")
    if len({block.pair for block in blocks}) > 1:
        problems.append("they belong to different pairs, so their fixtures differ")
    if problems:
        issues = [Issue(path="audit", message=problem) for problem in problems]
        raise ConfigError(f"{first} and {second}", issues)
    ordered = tuple(sorted(blocks, key=lambda block: block.position))
    plan = runs[0].plan
    logs = {name: [entry for run in runs for entry in run.header[name]] for name in ("blocks", "block_log")}
    return replace(
        runs[0],
        run=f"{runs[0].run}+{runs[1].run}",
        plan=replace(plan, blocks=tuple(block for block in plan.blocks if block.pair == ordered[0].pair)),
        header={**runs[0].header, **logs},
        blocks=ordered,
        file_findings=(*runs[0].file_findings, *runs[1].file_findings),
    )


def keep_verdict(judged: Judged, folder: Path) -> None:
    """Write audit.json."""
    durable.write_whole(folder / "audit.json", durable.to_json(judged.as_json()))


def analyse_with_floors(judged: Judged, floors: Path) -> Effects:
    """Effects beside the kept A/A noise floors; a valid A/A run adds its own to them first."""
    kept = orjson.loads(floors.read_bytes()) if floors.is_file() else {}
    effects = judged.gathered.conclude(floors=kept)
    if judged.run.plan.aa and judged.verdict.status == "valid":
        kept = merge(kept, floors_of(judged.run, effects.table))
        durable.write_whole(floors, durable.to_json(kept))
        effects = judged.gathered.conclude(floors=kept)
    return effects


def report_on(judged: Judged, folder: Path, floors: Path) -> tuple[Path, Effects]:
    """audit.json, summary.json and report.html in the folder; returns the report's path and the effects."""
    effects = analyse_with_floors(judged, floors)
    keep_verdict(judged, folder)
    keep_summary(judged, effects, folder)
    return write_page(judged, effects, folder), effects


def keep_summary(judged: Judged, effects: Effects, folder: Path) -> None:
    """Write summary.json: every observation, or with many blocks every cell (`effects_per` says which)."""
    from harness.report.flat import effect_rows, summary_rows  # noqa: PLC0415 - plotting takes a second to import

    large = len(judged.run.blocks) >= BY_CELL
    summary = {
        "run": judged.run.run,
        "verdict": judged.verdict.status,
        "answer": effects.answer,
        "rows": judged.verdict.rows,
        "paired": judged.verdict.paired,
        "excluded": judged.verdict.excluded,
        "effects_per": "cell" if large else "unit",
        "effects": summary_rows(effects.table) if large else effect_rows(effects.table),
    }
    durable.write_whole(folder / "summary.json", durable.to_json(summary))


def write_page(judged: Judged, effects: Effects, folder: Path) -> Path:
    """Write report.html."""
    from harness.report.page import write_report  # noqa: PLC0415 - plotting takes a second to import

    return write_report(judged.run, judged.verdict, effects, folder / "report.html")
