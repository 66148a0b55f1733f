"""Progress of a run: a live display on a terminal, plain lines where standard error is piped, nothing with --quiet.

The display never refreshes by itself: a thread that draws would run inside measured windows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import TextColumn

from harness.cli.livebar import LiveBar

if TYPE_CHECKING:
    from harness.engines.events import LaunchEvent
    from harness.run.progress import Progress as Step
    from harness.wiring.screenings import RunOptions


class Watcher(LiveBar):
    """Listens to a run; use as a context manager around it."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet, more=(TextColumn("{task.fields[left]}"),), left="")
        self._unit = ""
        self.results: Path | None = None
        """Where this run's results go, once that is known."""

    def options(self, **values: str | bool | int | None) -> RunOptions:
        """Run options that report here."""
        from harness.wiring.screenings import RunOptions  # noqa: PLC0415 - not needed to parse the command line

        return RunOptions(
            on_progress=self.step,
            on_event=self.event,
            on_fixture=self.fixture,
            on_folder=self.folder,
            **values,  # type: ignore[arg-type]  # resume, follows, unvalidated, limit as RunOptions declares them
        )

    def folder(self, path: Path) -> None:
        """Say where the results go."""
        self.results = path
        self._line(f"results in {path}")

    def fixture(self, done: int, total: int) -> None:
        """Bodies built so far."""
        if self._live:
            self._update(description="building fixtures", completed=done, total=total)
        elif done == total:
            self._line(f"built {total} fixtures")

    def event(self, event: LaunchEvent) -> None:
        """A step of starting or stopping a process."""
        words = f"{event.process}: {event.phase.replace('_', ' ')}"
        if self._live:
            self._update(description=f"{words} {event.seconds:.0f} s")
        elif event.phase in {"ready", "killed"}:
            self._line(f"{words} after {event.seconds:.1f} s")

    def step(self, step: Step) -> None:
        """A step of the schedule."""
        if self._live:
            self._update(
                description=_words(step),
                completed=step.done,
                total=step.total,
                left=_left(step.left_s),
            )
            return
        unit = f"{step.block}/{step.phase}/{step.unit}"
        if unit != self._unit:
            self._unit = unit
            self._line(f"{_words(step)}  {step.done}/{step.total} {_left(step.left_s)}".rstrip())

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False)


def _words(step: Step) -> str:
    words = [f"block {step.block}/{step.blocks} {step.arm}", step.phase]
    words.extend(part for part in (step.key, step.hit_state) if part)
    if step.ttft_ns is not None:
        words.append(f"TTFT {step.ttft_ns / 1e6:,.0f} ms")
    return " · ".join(words)


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"
