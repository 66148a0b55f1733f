"""Progress of a validation: a live line on a terminal, one line a layer where standard error is piped."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.text import Text

from harness.cli.livebar import LiveBar

if TYPE_CHECKING:
    from harness.engines.events import LaunchEvent
    from harness.probes.results import LayerName, LayerResult
    from harness.wiring.validation import ValidateOptions

_MARK = {"passed": "ok", "failed": "FAILED", "not_validated": "not validated"}


class LayerWatch(LiveBar):
    """Listens to a validation; use as a context manager around it."""

    def options(self, short: bool, layers: Collection[LayerName], pool_gib: float | None) -> ValidateOptions:
        """Options that report here."""
        from harness.probes.service_plan import FULL, SHORT  # noqa: PLC0415 - not needed to parse the command line
        from harness.wiring.validation import ValidateOptions  # noqa: PLC0415 - the same

        return ValidateOptions(
            composition=SHORT if short else FULL,
            layers=layers,
            pool_gib=pool_gib,
            on_layer=self.layer,
            on_step=self.step,
            on_event=self.event,
        )

    def layer(self, name: LayerName, result: LayerResult | None) -> None:
        """A layer begins, or has ended."""
        if result is None:
            self._show(name, 0, 0)
        elif not self._quiet:
            seconds = "" if result.seconds is None else f" ({result.seconds:.1f} s)"
            self._console.print(Text(f"{name}: {_MARK[result.status]}{seconds}  {result.summary}"))

    def step(self, words: str, done: int, total: int) -> None:
        """A step within a layer."""
        self._show(words, done, total)

    def event(self, event: LaunchEvent) -> None:
        """A step of starting or stopping a process."""
        self._show(f"{event.process}: {event.phase.replace('_', ' ')} {event.seconds:.0f} s", 0, 0)

    def _show(self, words: str, done: int, total: int) -> None:
        if self._live:
            self._update(description=words, completed=done, total=total or None)
