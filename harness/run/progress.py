"""Progress as values: what is being done, to what, and how much is left. Emitted between measured windows only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["start", "canary", "warm-up", "measure", "stop", "commit", "archive", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One step of a run."""

    block: int
    blocks: int
    arm: str
    phase: Phase
    key: str | None = None
    unit: str | None = None
    hit_state: str | None = None
    """What the request stands for: cold, local, cross, … and after it what it hit."""
    ttft_ns: int | None = None
    done: int = 0
    """Requests done in the whole run, warm-ups included."""
    total: int = 0
    left_s: float | None = None
    """Estimated seconds left, None before anything is known."""


OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """The default listener."""
