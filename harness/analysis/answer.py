"""The answer in one paragraph: verdict, the headline changes, and whether they stand out from the noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.analysis.cells import Effect, EffectTable
    from harness.model.findings import Verdict

_MINUS = "\N{MINUS SIGN}"


def answer(table: EffectTable, verdict: Verdict) -> str:
    """The paragraph, plain text: `Alternating sessions at 128k: −44.6 %; fixed: +0.3 %, inside the noise floor.`."""
    sentences = [_standing(table, verdict)]
    for treatment in table.treatments:
        lead = f"{treatment} against {table.baseline}: " if len(table.treatments) > 1 or table.aa else ""
        parts = [*_sessions(table, treatment), *_cross(table, treatment), *_windows(table, treatment)]
        if parts:
            text = "; ".join(parts)
            sentences.append(f"{lead}{text if lead else text[0].upper() + text[1:]}.")
    sentences.append(_pairs(table))
    return " ".join(sentence for sentence in sentences if sentence)


def change_words(effect: Effect) -> str:
    """`−44.6 %`, with its interval and its place against the noise floor where they exist."""
    text = percent(effect.mean_change_pct)
    if effect.low_pct is not None and effect.high_pct is not None:
        text += f" (95 % interval {percent(effect.low_pct)} to {percent(effect.high_pct)})"
    if effect.inside_floor is not None and effect.floor is not None:
        place = "inside the noise floor" if effect.inside_floor else "outside the noise floor"
        text += f", {place} (±{effect.floor.pct:.1f} %)" if effect.inside_floor else ""
    return text


def percent(value: float) -> str:
    """A signed percentage with one decimal; what rounds to zero carries no sign."""
    if not math.isfinite(value):
        return "no figure"
    text = f"{value:+.1f}"
    text = text.lstrip("+-") if float(text) == 0 else text
    return f"{text.replace('-', _MINUS)} %"


def _standing(table: EffectTable, verdict: Verdict) -> str:
    if verdict.status == "void":
        first = next((f for f in verdict.findings if f.severity == "void"), None)
        why = f" ({first.rule}: {first.subject})" if first else ""
        return f"This screening is void{why}: its figures are no evidence."
    if verdict.status == "incomplete":
        lost = sum(unit.rows for unit in verdict.excluded_units)
        uneven = " Failure rates differ between arms, so the comparison is inconclusive." if table.inconclusive else ""
        rows = f"{lost:,} of {verdict.rows:,} rows"
        return f"This screening is incomplete: {rows} left the estimate with their partners.{uneven}"
    return "An A/A screening: both sides ran the same arm, so every change below is noise." if table.aa else ""


def _sessions(table: EffectTable, treatment: str) -> list[str]:
    by_size: dict[str, list[Effect]] = {}
    for effect in table.of_metric("session_wall", treatment):
        if effect.units:
            by_size.setdefault(effect.cell.size, []).append(effect)
    out = []
    for size, found in by_size.items():
        found.sort(key=lambda e: e.cell.placement)
        first, *rest = found
        out.append(f"{first.cell.placement} sessions at {size}: {change_words(first)}")
        out.extend(f"{effect.cell.placement}: {change_words(effect)}" for effect in rest)
    return out


def _cross(table: EffectTable, treatment: str) -> list[str]:
    found = [e for e in table.of_metric("ttft", treatment) if e.cell.role == "cross" and e.units]
    if not found:
        return []
    if len(found) == 1:
        return [f"time to first token on the other replica at {found[0].cell.size}: {change_words(found[0])}"]
    low, high = min(found, key=lambda e: e.mean_change_pct), max(found, key=lambda e: e.mean_change_pct)
    span = f"{percent(high.mean_change_pct)} ({high.cell.size}) to {percent(low.mean_change_pct)} ({low.cell.size})"
    return [f"time to first token on the other replica: {span}"]


def _windows(table: EffectTable, treatment: str) -> list[str]:
    found = [e for e in table.of_metric("window_throughput", treatment) if e.units]
    return [
        f"output tokens/s with {e.cell.label}: {change_words(e)}" for e in found if e.cell.placement == "alternating"
    ]


def _pairs(table: EffectTable) -> str:
    pairs = max((effect.pairs for effect in table.effects), default=0)
    if pairs == 0:
        return "No matched unit is left in any block pair: nothing can be compared."
    if any(effect.low_pct is not None for effect in table.effects):
        return ""
    words = "no interval and no claim of significance (at least 6 are needed)"
    return f"{pairs} block pair{'s' if pairs > 1 else ''}: {words}."
