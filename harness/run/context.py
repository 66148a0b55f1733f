"""What one block is run with, and how a finding becomes the exception that stops it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.model.errors import LeakError, VoidBlock
from harness.model.findings import Finding
from harness.model.rulebook import rule
from harness.rules.outcomes import decisive, happening
from harness.run.progress import OnProgress, Phase, Progress, ignore

if TYPE_CHECKING:
    from harness.model.planned import Plan, PlannedBlock
    from harness.model.screening import Arm, Screening
    from harness.run.ports import Clock, Fixtures, Stage
    from harness.store.folder import RunFolder


@dataclass(slots=True, kw_only=True)
class Pace:
    """Counts requests over the whole run and estimates what is left: mean request × requests, mean start × starts."""

    clock: Clock
    total: int
    blocks: int
    on_progress: OnProgress = ignore
    done: int = 0
    began_ns: int | None = None
    starting_ns: int = 0
    """Time spent in starts so far, which no request is charged with."""
    starts: int = 0
    _start_ns: int | None = None

    def report(self, block: PlannedBlock, phase: Phase, key: str | None = None, **more: object) -> None:
        """Tell the listener; call it between measured windows only."""
        self._account(phase)
        self.on_progress(
            Progress(
                block=block.position,
                blocks=self.blocks,
                arm=block.arm,
                phase=phase,
                key=key,
                done=self.done,
                total=self.total,
                left_s=self._left_s(block),
                **more,  # type: ignore[arg-type]  # hit_state and ttft_ns, as Progress declares them
            )
        )

    def _account(self, phase: Phase) -> None:
        now = self.clock.now_ns()
        self.began_ns = now if self.began_ns is None else self.began_ns
        if phase == "start":
            self._start_ns = now
        elif self._start_ns is not None:
            self.starting_ns += now - self._start_ns
            self.starts += 1
            self._start_ns = None

    def _left_s(self, block: PlannedBlock) -> float | None:
        if not self.done or not self.starts or self.began_ns is None:
            return None
        left = self.total - self.done
        spent = self.clock.now_ns() - self.began_ns - self.starting_ns
        coming = self.starting_ns / self.starts * (self.blocks - block.position) if left else 0
        return (spent / self.done * left + coming) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that all blocks of a run share."""

    screening: Screening
    plan: Plan
    fixtures: Fixtures
    stage: Stage
    clock: Clock
    folder: RunFolder
    pace: Pace
    host: dict[str, object] = field(default_factory=dict)

    def arm(self, block: PlannedBlock) -> Arm:
        """The arm that the block runs (not the one it plays)."""
        return self.screening.arm(block.arm)

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of all replicas."""
        return tuple(replica.name for replica in self.screening.engine.replicas)


def stop_if_void(findings: Iterable[Finding]) -> None:
    """Raise LeakError or VoidBlock for the decisive finding, if there is one."""
    found = decisive(findings)
    if found is None:
        return
    kind = LeakError if happening(found.rule) == "leak" else VoidBlock
    raise kind(found.detail, rule=found.rule, key=found.subject, hint=rule(found.rule).next_step)
