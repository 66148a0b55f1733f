"""What the page shows of the analysis: TTFT, sessions, decode rate and windows, changes, drift, published, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.model.findings import Verdict
from harness.model.stored import StoredRun
from harness.report.client_error import HEAD, client_errors, client_note
from harness.report.drilldown import Ident
from harness.report.effect_views import ArmCell, Links, floor_text, interval_text, number, rows
from harness.report.numbers import NARROW, percent, plural
from harness.report.panels import Figures
from harness.report.statements import drift_section, exclusion_section, output_section, published_section
from harness.report.strips import Strips
from harness.report.words import METRICS, PAPER, arm_names, cell_words

if TYPE_CHECKING:
    from harness.analysis import Cell, Effect, Effects, EffectTable

_LOCALITY = {
    "cold": "cold",
    "local": "local (first)",
    "local-2": "local (second, stored apart)",
    "cross": "cross",
    "receiver_local": "local on the receiver",
}


def results(run: StoredRun, table: EffectTable, anchors: Mapping[Ident, str]) -> dict[str, Any]:
    """Context of the template `results.html` that comes from the effects themselves."""
    links = Links(run, anchors)
    figures = Figures(run, table, links)
    return {
        "ttft": _ttft(run, table, links, figures),
        "sessions": _sessions(table, links, figures),
        "rates": _rates(table, links, figures),
        "changes": _changes(table),
    }


def _ttft(run: StoredRun, table: EffectTable, links: Links, figures: Figures) -> dict[str, Any] | None:
    found = table.of_metric("ttft")
    if not found:
        return None
    return {
        "panels": figures.ttft(),
        "rows": rows(found, links, labels=_size_and_locality, errors=client_errors(run)),
        "error_head": HEAD,
        "error_note": client_note(run),
    }


def _size_and_locality(cell: Cell) -> tuple[str, ...]:
    return cell.size, _LOCALITY.get(cell.role, cell.role)


def _sessions(table: EffectTable, links: Links, figures: Figures) -> dict[str, Any] | None:
    found = table.of_metric("session_wall")
    if not found:
        return None
    return {
        "panels": figures.slopes(
            "session_wall",
            panel_of=lambda cell: f"Sessions from {cell.size}",
            group_of=lambda cell: cell.placement,
        ),
        "rows": rows(found, links, labels=lambda cell: (cell.size, cell.placement)),
    }


def _rates(table: EffectTable, links: Links, figures: Figures) -> dict[str, Any] | None:
    decode, windows = table.of_metric("decode_rate"), table.of_metric("window_throughput")
    if not decode and not windows:
        return None
    panels = figures.slopes(
        "decode_rate",
        panel_of=lambda cell: f"Decode, {cell.size} in, {cell.output:,} out",
        group_of=lambda cell: f"{cell.role} prefix",
    ) + figures.slopes(
        "window_throughput",
        panel_of=lambda cell: f"Throughput, {plural(cell.sessions, 'session')} at once",
        group_of=lambda cell: cell.placement,
    )
    return {
        "panels": panels,
        "decode": rows(decode, links, labels=lambda cell: (cell.size, cell.role, f"{cell.output:,} tokens")),
        "windows": rows(windows, links, labels=lambda cell: (f"{cell.sessions} × {cell.size}", cell.placement)),
    }


def _changes(table: EffectTable) -> dict[str, Any] | None:
    shown = [effect for effect in table.effects if effect.cell.metric in METRICS and effect.units]
    if not shown:
        return None
    strips = Strips(shown)
    return {
        "axis": strips.axis(),
        "sentence": _method_sentence(shown),
        "floor_note": _floor_note(table, shown),
        "rows": [
            {
                "metric": METRICS[effect.cell.metric],
                "again": index > 0 and shown[index - 1].cell.metric == effect.cell.metric,
                "cell": cell_words(effect.cell),
                "arm": effect.treatment,
                "mean": percent(number(effect.mean_change_pct)),
                "strip": strips.draw(effect),
                "pairs": _pairs(effect),
                "floor": floor_text(effect),
                "interval": interval_text(effect),
            }
            for index, effect in enumerate(shown)
        ],
    }


def _pairs(effect: Effect) -> ArmCell:
    listed = effect.per_pair[:60]
    texts = tuple((percent(pair.change_pct), None) for pair in listed)
    return ArmCell(median="", observations=texts, more=len(effect.per_pair) - len(listed))


def _method_sentence(shown: list[Effect]) -> str:
    unit = (
        "Matched units (a chain, a session, a generation, a window) are nested in block pairs; "
        "the block pair is the independent unit, never the request."
    )
    reason = next((effect.no_interval for effect in shown if effect.no_interval), None)
    method = next((effect.method for effect in shown if effect.method), None)
    return " ".join(part for part in (unit, _sentence(reason), _sentence(method)) if part)


def _sentence(words: str | None) -> str:
    """Words as a sentence of its own."""
    return "" if not words else f"{words[0].upper()}{words[1:].rstrip('.')}."


def _floor_note(table: EffectTable, shown: list[Effect]) -> str:
    if table.aa:
        return "This is an A/A screening: the arms differ in their label alone, and its spread is the noise floor."
    floors = {effect.floor.run: effect.floor for effect in shown if effect.floor is not None}
    if not floors:
        return "No A/A screening of this fingerprint is known, so no effect here can be compared with a noise floor."
    named = ", ".join(f"{run} ({plural(floor.aa_pairs, 'block pair')})" for run, floor in floors.items())
    return f"A/A floor from {named}: 95 % of A/A means over as many block pairs lie within it."


def sections(run: StoredRun, verdict: Verdict, effects: Effects, anchors: Mapping[Ident, str]) -> dict[str, Any]:
    """Everything the templates show of the analysis."""
    arms = arm_names(run)
    published = effects.published if run.screening.name.startswith(PAPER) else None
    return results(run, effects.table, anchors) | {
        "answer": effects.answer.replace(" %", f"{NARROW}%"),  # a number keeps its sign on its line
        "drift": drift_section(effects.drift),
        "published": None if published is None else published_section(published),
        "outputs": output_section(effects.outputs, arms),
        "exclusions": exclusion_section(verdict, arms),
    }
