"""Sections that are tables of analysed values: drift, published beside measured, output checks, exclusions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.model.findings import Verdict
from harness.model.rulebook import RULES
from harness.report.effect_views import formatter
from harness.report.numbers import DASH, NARROW, count, percent, plural, rate, seconds, signed
from harness.report.words import METRICS, cell_words

if TYPE_CHECKING:
    from harness.analysis import Drift, OutputSummary, Published
    from harness.analysis.outputs import TextEquality
    from harness.analysis.published import Line

UNITS_LISTED = 40

_VERDICTS: Mapping[str, str] = {
    "correct": "the planted values came back exactly",
    "forced_ok": "exactly the forced number of output tokens",
    "unchecked": "no check applies to this request",
    "wrong": "a planted value was not returned as planted",
    "foreign": "a value of another namespace came back",
    "unparsable": "no value can be read from the answer",
    "drift": "wrong in the same way without a transfer: numeric drift candidate",
    "transfer_suspect": "wrong after a transfer, right without one",
    "forced_wrong_length": "another number of output tokens than forced",
    "failed": "the request failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One published figure: `values` as shown, whether the measured one lies within `tolerance`."""

    values: tuple[str, ...]
    within: bool | None
    tolerance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """Rows by output verdict, one count an arm."""

    label: str
    meaning: str
    counts: tuple[str, ...]


def drift_section(found: Sequence[Drift]) -> dict[str, Any] | None:
    """Early against late blocks of the same arm; None where no arm ran twice in a palindrome."""
    shown = [one for one in found if one.cell.metric in METRICS]
    if not shown:
        return None
    worst = max(shown, key=lambda one: abs(one.pct_per_block))
    return {
        "sentence": (
            "The same arm and units, early against late within each palindrome, in percent per block position. "
            f"Largest: {percent(worst.pct_per_block)} a block in "
            f"{METRICS[worst.cell.metric]}, {cell_words(worst.cell)} ({worst.arm})."
        ),
        "caption": "Drift by metric, cell and arm.",
        "heads": ("metric", "cell", "arm", "blocks", "early median", "late median", "drift per block"),
        "rows": [_drift_row(one) for one in shown],
    }


def published_section(found: Published) -> dict[str, Any]:
    """The paper's figures beside this run's, misses included."""
    return {
        "sentence": found.sentence,
        "heads": ("figure", "published", "measured", "deviation"),
        "texts": 1,
        "rows": [_published_row(line) for line in found.lines],
    }


def output_section(found: OutputSummary, arms: Sequence[str]) -> dict[str, Any]:
    """Verdicts by arm, what the history could have answered, and text equality as information."""
    names = dict.fromkeys(name for name in _VERDICTS if any(name in found.by_arm.get(arm, {}) for arm in arms))
    extra = dict.fromkeys(name for arm in arms for name in found.by_arm.get(arm, {}) if name not in _VERDICTS)
    return {
        "sentences": [found.sentence, *_texts(found)],
        "rows": [
            VerdictRow(
                label=name.replace("_", " "),
                meaning=_VERDICTS.get(name, ""),
                counts=tuple(count(found.by_arm.get(arm, {}).get(name, 0)) for arm in arms),
            )
            for name in (*names, *extra)
        ],
    }


def exclusion_section(verdict: Verdict, arms: Sequence[str]) -> dict[str, Any] | None:
    """Units that left the estimate, and failures by reason and arm before their partners left with them."""
    if not verdict.excluded_units and not verdict.failures:
        return None
    rules = dict.fromkeys(rule for counts in verdict.failures.values() for rule in counts)
    listed = verdict.excluded_units[:UNITS_LISTED]
    return {
        "reasons": [
            (
                rule,
                RULES[rule].title if rule in RULES else "",
                [count(verdict.failures.get(arm, {}).get(rule, 0)) for arm in arms],
            )
            for rule in rules
        ],
        "units": [
            (
                f"pair {unit.pair}",
                "all units" if unit.unit == "*" else unit.unit,
                unit.rule,
                f"{unit.arm}, block {unit.block}",
                unit.key or DASH,
                count(unit.rows),
            )
            for unit in listed
        ],
        "more": len(verdict.excluded_units) - len(listed),
    }


def _drift_row(one: Drift) -> tuple[str, ...]:
    write = formatter(one.cell)
    return (
        METRICS[one.cell.metric],
        cell_words(one.cell),
        one.arm,
        one.label.partition(": block ")[2] or one.label,
        write(one.early_median),
        write(one.late_median),
        percent(one.pct_per_block),
    )


def _published_row(line: Line) -> PublishedRow:
    write: Callable[[float | None], str] = {"%": percent, "s": seconds}.get(line.unit, rate)
    points = line.unit == "%"
    deviation = f"{signed(line.deviation)} points" if points else percent(line.deviation)
    bound = "points" if points else "%"
    return PublishedRow(
        values=(
            line.label,
            f"{line.published:.3f}" if line.unit == "s" else write(line.published),  # as printed there
            write(line.measured),
            DASH if line.deviation is None or math.isnan(line.deviation) else deviation,
        ),
        within=line.within,
        tolerance="" if line.tolerance is None else f"{line.tolerance:g}{NARROW}{bound}",
    )


def _texts(found: OutputSummary) -> list[str]:
    sentences = []
    for words, counts in (
        ("Generation text, cold against hot", found.cold_hot),
        ("Chain text, cold against later steps", found.cold_warm),
        ("Text in the baseline against other arms (information only)", found.between_arms),
    ):
        compared = {name: equal for name, equal in counts.items() if equal.compared}
        if compared:
            sentences.append(f"{words}: {'; '.join(_equality(name, equal) for name, equal in compared.items())}.")
    return sentences


def _equality(name: str, equal: TextEquality) -> str:
    return f"{name} {equal.equal:,} of {plural(equal.compared, 'pair')} equal"
