"""A progress bar on standard error that exists only where somebody can see it move."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from harness.cli.output import err


class LiveBar:
    """Use as a context manager around what reports. `quiet` shows nothing; a pipe gets lines, no bar."""

    def __init__(self, *, quiet: bool, more: tuple[TextColumn, ...] = (), **fields: Any) -> None:
        self._console = err()
        self._quiet = quiet
        self._live = not quiet and self._console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), *more)
        self._bar = Progress(*columns, console=self._console, auto_refresh=False, transient=True)
        self._task = self._bar.add_task("starting", total=None, **fields)

    def __enter__(self) -> Self:
        if self._live:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._bar.stop()

    def _update(self, **values: Any) -> None:
        self._bar.update(self._task, refresh=True, **values)
