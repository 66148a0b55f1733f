"""Why an answer is wrong: model, near-tie numerics, transferred state, or another request's state. Pure.

Strategy: the known value decides, never text equality. When a reused answer is wrong, the same tokens are sent twice
more under a fresh salt to the same replica: once cold, once with local reuse but no transfer. Wrong when cold: the
model. Wrong in the same way on local reuse: numerics (COR-3). Right both times, and wrong only after a transfer: the
fault is in transferred state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.rules.answers import Judgement, explain_wrong

Cause = Literal["foreign", "transferred state", "drift candidate", "model", "unexplained"]

WORST_FIRST: tuple[Cause, ...] = ("foreign", "transferred state", "drift candidate", "model", "unexplained")
_RIGHT = frozenset({"correct", "forced_ok", "unchecked"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltControl:
    """The same tokens under a fresh salt, at the same replica: cold, then reused locally. None: the request failed."""

    cold: Judgement | None
    warm: Judgement | None
    cold_text: str = ""
    warm_text: str = ""


def needs_control(seen: Judgement, *, reused: bool) -> bool:
    """True for a wrong answer that may be the cache's fault."""
    return reused and seen.verdict in ("wrong", "unparsable", "forced_wrong_length")


def cause_of(seen: Judgement, *, reused: bool, transferred: bool, control: SaltControl | None) -> Cause | None:
    """The cause of a wrong answer, None where it is right.

    Args:
        seen: the answer, judged by its known values.
        reused: the request hit any cached tokens.
        transferred: it, or an earlier request of its namespace at this replica, hit tokens of the shared tier.
        control: what the salt control answered; None where none was sent.
    """
    if seen.verdict in _RIGHT:
        return None
    if seen.verdict == "foreign":
        return "foreign"
    if not reused:
        return "model"
    if control is None or control.cold is None:
        return "unexplained"
    return _controlled(seen, control.cold, control.warm, transferred=transferred)


def _controlled(seen: Judgement, cold: Judgement, warm: Judgement | None, *, transferred: bool) -> Cause:
    if cold.verdict not in _RIGHT:
        return "model"
    if not transferred:
        return "drift candidate"
    if warm is None:
        return "unexplained"
    if warm.verdict in _RIGHT:
        return "transferred state"
    return "drift candidate" if explain_wrong(seen, warm) == "drift" else "unexplained"
