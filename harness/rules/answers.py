"""Whether an answer is right, and what a wrong one means. The known value decides, never text equality."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.model.screening import AnswerForm

Verdict = Literal[
    "correct",
    "wrong",
    "foreign",
    "unparsable",
    "drift",
    "transfer_suspect",
    "forced_ok",
    "forced_wrong_length",
    "unchecked",
]

_NUMBER = re.compile(r"(?<!\d)\d+(?!\d)")
_LEAST_TELLING = 1000
"""Numbers below this are too common (years aside, counts and indices) to prove another namespace's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict and the numbers that could be read from the answer."""

    verdict: Verdict
    values: Mapping[str, int] | None
    """Name → value as answered; None where no JSON object could be read."""
    foreign: tuple[int, ...] = ()
    """Planted values of other namespaces that stand in the answer."""


def judge(
    text: str,
    *,
    expected: Mapping[str, int],
    foreign: Collection[int],
    own: Collection[int] = (),
    form: AnswerForm = "object",
) -> Judgement:
    """Judge an answer that must be a JSON object with the expected name → value pairs.

    Where an array is asked for it must hold the values in the order of `expected`; another length cannot be read.
    `foreign` are all values planted in other namespaces, `own` those of this one (a number that is both is own). A
    foreign value anywhere in the text is foreign whatever else is right: state of another request was used (COR-1).
    """
    values = read_values(text) if form == "object" else read_items(text, tuple(expected))
    mine = {*own, *expected.values()}
    seen = {int(digits) for digits in _NUMBER.findall(text) if len(digits) < 19}
    strangers = tuple(sorted(n for n in seen if n >= _LEAST_TELLING and n in foreign and n not in mine))
    if strangers:
        return Judgement(verdict="foreign", values=values, foreign=strangers)
    if values is None:
        return Judgement(verdict="unparsable", values=None)
    right = all(values.get(name) == value for name, value in expected.items())
    return Judgement(verdict="correct" if right else "wrong", values=values)


def judge_length(completion_tokens: int, forced_tokens: int) -> Judgement:
    """Exactly the forced number of output tokens, by the server's own usage."""
    ok = completion_tokens == forced_tokens
    return Judgement(verdict="forced_ok" if ok else "forced_wrong_length", values=None)


def explain_wrong(transferred: Judgement, control: Judgement | None) -> Verdict:
    """What a wrong answer after a transfer means, given a local-warm control of the same prompt without transfer.

    control right → the fault is in transferred state; control wrong in the same way → near-tie numerics; no control, or
    wrong in another way → just wrong (COR-3).
    """
    if transferred.verdict not in ("wrong", "unparsable") or control is None:
        return transferred.verdict
    if control.verdict == "correct":
        return "transfer_suspect"
    if control.verdict == transferred.verdict and control.values == transferred.values:
        return "drift"
    return transferred.verdict


def read_values(text: str) -> dict[str, int] | None:
    """The integers of the first JSON object in the text; digits in quotes count as well. None where there is none."""
    found = _first(text, "{")
    return _integers(found) if isinstance(found, dict) else None


def read_items(text: str, names: Sequence[str]) -> dict[str, int] | None:
    """The integers of the first JSON array in the text, named in order; None without one of that length."""
    items = _first(text, "[")
    if not isinstance(items, list) or len(items) != len(names):
        return None
    return _integers(dict(zip(names, items, strict=True)))


def _first(text: str, opening: str) -> Any:
    """The first JSON value in the text that begins with `opening`; None without one."""
    decoder = json.JSONDecoder()
    start = text.find(opening)
    while start >= 0:
        try:
            return decoder.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            start = text.find(opening, start + 1)
    return None


def _integers(value: Mapping[str, Any]) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, item in value.items():
        if isinstance(item, int) and not isinstance(item, bool):
            out[name] = item
        elif isinstance(item, str) and item.strip().isascii() and item.strip().isdigit() and len(item) < 19:
            out[name] = int(item)
    return out
