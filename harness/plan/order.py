"""Which block pairs with which, and what each block stands for.

Strategy: an order over K arms is read in groups of K consecutive blocks that hold every arm once. For two arms in
OFF-ON-ON-OFF the groups are the pairs (1,2) and (4,3); for OFF-NATIVE-ON-ON-NATIVE-OFF they are the palindrome
halves. An order of one arm alone is an A/A screening: it is read as A-B-B-A, positions 2 and 3 play the treatment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

AA_STRETCH = 4
"""Blocks of one A-B-B-A stretch of an A/A screening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One block position: 1-based position and pair, the arm that runs, and the arm it stands for."""

    position: int
    pair: int
    arm: str
    plays: str


def is_aa(order: Sequence[str]) -> bool:
    """True where one arm fills every position of more than one block."""
    return len(order) > 1 and len(set(order)) == 1


def group_size(order: Sequence[str]) -> int:
    """Blocks that are compared with one another: 2, or the number of arms where there are more."""
    return 2 if is_aa(order) else len(set(order))


def pseudo_treatment(baseline: str) -> str:
    """The name that positions 2 and 3 of an A/A screening play."""
    return "on" if baseline != "on" else "pseudo-on"


def slots(order: Sequence[str], baseline: str) -> tuple[Slot, ...]:
    """Every position of the order with its pair and role; the order must have passed `order_problem`."""
    size = group_size(order)
    return tuple(
        Slot(position=index + 1, pair=index // size + 1, arm=arm, plays=_plays(order, index, baseline))
        for index, arm in enumerate(order)
    )


def order_problem(order: Sequence[str], *, counterbalanced: bool) -> str | None:
    """What is wrong with an order, or None.

    Every order consists of groups that hold each arm once. A counterbalanced one consists of palindromes of two
    groups each (OFF-ON-ON-OFF), or of one arm in a multiple of four blocks (A/A).
    """
    if len(order) < 2:
        return "one block has no partner; an order needs at least two"
    if is_aa(order):
        return None if len(order) % AA_STRETCH == 0 else "an A/A order has a multiple of 4 blocks"
    size = len(set(order))
    groups = [tuple(order[start : start + size]) for start in range(0, len(order), size)]
    if any(len(set(group)) != size for group in groups):
        return f"each group of {size} consecutive blocks must hold every arm once"
    if not counterbalanced:
        return None
    if len(groups) % 2 or any(first != second[::-1] for first, second in zip(groups[::2], groups[1::2], strict=True)):
        return "the order is no palindrome, nor a repetition of palindromes, so drift would pass for an effect"
    return None


def _plays(order: Sequence[str], index: int, baseline: str) -> str:
    if is_aa(order) and index % AA_STRETCH in (1, 2):
        return pseudo_treatment(baseline)
    return order[index]
