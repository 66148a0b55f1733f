"""Whole runs in the fake world, in a temporary folder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from fake_world import FakeClock, FakeFixtures, FakeStage, Faults, make_screening

from harness.model.planned import Plan
from harness.model.screening import Screening
from harness.model.stored import StoredRun
from harness.plan import schedule
from harness.run.context import Pace, Setting
from harness.run.progress import Progress
from harness.run.screening import run_screening
from harness.store import RunFolder, read_run


@dataclass
class FakeRun:
    """A screening in the fake world; `go` runs it and lets errors through."""

    screening: Screening
    plan: Plan
    stage: FakeStage
    setting: Setting
    progress: list[Progress]

    @property
    def path(self) -> Path:
        return self.setting.folder.path

    def go(self) -> None:
        asyncio.run(run_screening(self.setting, self.plan.blocks))

    def read(self) -> StoredRun:
        return read_run(self.path, lambda _: (self.screening, self.plan))


def fake_run(
    tmp_path: Path,
    faults: Faults | None = None,
    *,
    screening: Screening | None = None,
    folder: RunFolder | None = None,
) -> FakeRun:
    screening = screening or make_screening()
    plan = schedule(screening)
    clock = FakeClock()
    stage = FakeStage(clock, faults)
    if folder is None:
        header = {"declaration_digest": screening.digest, "status": "open"}
        folder = RunFolder.create(tmp_path, screening.name, "20261130-120000", header=header, declaration=b"{}\n")
    progress: list[Progress] = []
    total = sum(len(block.warmups) + len(block.requests) for block in plan.blocks)
    setting = Setting(
        screening=screening,
        plan=plan,
        fixtures=FakeFixtures(plan),
        stage=stage,
        clock=clock,
        folder=folder,
        pace=Pace(clock=clock, total=total, blocks=len(plan.blocks), on_progress=progress.append),
    )
    return FakeRun(screening=screening, plan=plan, stage=stage, setting=setting, progress=progress)
