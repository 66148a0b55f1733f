"""Two screenings side by side: refused where fingerprints differ, unless that is allowed, and then the output says so.

A change of A and a change of B are comparable only where both ran the same engine, host, requests, workloads and
processes. The fingerprint is that of the A/A noise floors (`harness.analysis.fingerprint_digest`), one an arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.analysis import fingerprint_digest
from harness.model.errors import ExitCode, HarnessError
from harness.model.findings import Verdict
from harness.model.stored import StoredRun
from harness.report.effect_views import number
from harness.report.numbers import DASH, percent, rate, seconds, signed
from harness.report.provenance import flatten, simulated, unvalidated
from harness.report.terminal import clean
from harness.report.words import METRICS, cell_words

if TYPE_CHECKING:
    from harness.analysis import Cell, Effect, Effects

DIFFERENCES_SHOWN = 8
_VOLATILE = frozenset(
    {"pid", "ppid", "start_time", "started_at", "started", "create_time", "port", "url", "log", "cwd"}
)


class DifferentScreenings(HarnessError):
    """The two screenings were made with different set-ups; `differences` says in what."""

    exit_code = ExitCode.FINDINGS

    def __init__(self, differences: tuple[str, ...]) -> None:
        words = "\n".join(f"  {difference}" for difference in differences)
        super().__init__(
            f"the two screenings are not comparable:\n{words}",
            hint="Compare screenings of one set-up, or add --allow-different; the output will say so.",
        )
        self.differences = differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One screening with its verdict and results."""

    run: StoredRun
    verdict: Verdict
    effects: Effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What one screening says about a cell; None where it does not have it."""

    baseline_median: float | None
    treatment_median: float | None
    change_pct: float | None
    floor_pct: float | None
    units: int
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One cell and treatment in both screenings; `points` = change in B − change in A."""

    cell: str
    label: str
    treatment: str
    unit: str
    a: Half
    b: Half
    points: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two screenings side by side. `differences` is empty where their fingerprints are equal."""

    a: str
    b: str
    verdict_a: str
    verdict_b: str
    differences: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def notice(self) -> str:
        """What must be said beside every figure; empty where nothing must."""
        parts = []
        if self.differences:
            parts.append(
                f"The fingerprints differ, and the comparison was made all the same: {'; '.join(self.differences)}."
            )
        parts += [
            f"{name} is {status}: its figures are no evidence." if status.startswith("void") else f"{name} is {status}."
            for name, status in ((self.a, self.verdict_a), (self.b, self.verdict_b))
            if not status.startswith("valid") or "unvalidated" in status
        ]
        return " ".join(parts)


def compare(a: Side, b: Side, *, allow_different: bool = False) -> Comparison:
    """Set B beside A. DifferentScreenings where fingerprints differ and that is not allowed."""
    differences = tuple(_differences(a, b))
    if differences and not allow_different:
        raise DifferentScreenings(differences)
    return Comparison(
        a=_name(a),
        b=_name(b),
        verdict_a=_status(a),
        verdict_b=_status(b),
        differences=differences,
        lines=tuple(_lines(a, b)),
    )


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON values, with the notice spelled out."""
    return asdict(comparison) | {"notice": comparison.notice}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The comparison as tables, the notice above and below them."""
    if comparison.notice:
        console.print(clean(comparison.notice), style="bold yellow")
    console.print(clean(f"A = {comparison.a} ({comparison.verdict_a})\nB = {comparison.b} ({comparison.verdict_b})"))
    for metric, title in METRICS.items():
        lines = [line for line in comparison.lines if line.cell.startswith(f"{metric}/")]
        if lines:
            console.print(_table(title, lines))
    if comparison.notice:
        console.print(clean(comparison.notice), style="bold yellow")


def _table(title: str, lines: list[Line]) -> Table:
    table = Table(title=f"{title}, {lines[0].unit}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("cell")
    for head in ("A baseline", "A arm", "A change", "B baseline", "B arm", "B change", "B \N{MINUS SIGN} A"):
        table.add_column(Text(head), justify="right")
    for line in lines:
        table.add_row(
            clean(f"{line.label}, {line.treatment}"),
            *_half(line, line.a),
            *_half(line, line.b),
            DASH if line.points is None else f"{signed(line.points)} pts",
        )
    return table


def _half(line: Line, half: Half) -> tuple[str, str, str]:
    write = seconds if line.unit == "s" else rate
    return write(half.baseline_median), write(half.treatment_median), percent(half.change_pct)


def _lines(a: Side, b: Side) -> Iterator[Line]:
    left, right = _by_cell(a), _by_cell(b)
    for key in dict.fromkeys([*left, *right]):
        cell, treatment = key
        if cell.metric not in METRICS:
            continue
        halves = (_side_half(left.get(key)), _side_half(right.get(key)))
        changes = [half.change_pct for half in halves]
        points = None if changes[0] is None or changes[1] is None else changes[1] - changes[0]
        yield Line(
            cell=cell.id,
            label=cell_words(cell),
            treatment=treatment,
            unit=cell.unit,
            a=halves[0],
            b=halves[1],
            points=points,
        )


def _by_cell(side: Side) -> Mapping[tuple[Cell, str], Effect]:
    return {(effect.cell, effect.treatment): effect for effect in side.effects.table.effects if effect.units}


def _side_half(effect: Effect | None) -> Half:
    if effect is None:
        return Half(baseline_median=None, treatment_median=None, change_pct=None, floor_pct=None, units=0, pairs=0)
    return Half(
        baseline_median=number(effect.baseline_median),
        treatment_median=number(effect.treated_median),
        change_pct=number(effect.mean_change_pct),
        floor_pct=None if effect.floor is None else effect.floor.pct,
        units=effect.units,
        pairs=effect.pairs,
    )


def _name(side: Side) -> str:
    return f"{side.run.screening.name} {side.run.run}"


def _status(side: Side) -> str:
    marks = [
        word for word, says in (("unvalidated", unvalidated(side.run)), ("simulated", simulated(side.run))) if says
    ]
    return side.verdict.status if not marks else f"{side.verdict.status}, {', '.join(marks)}"


def _differences(a: Side, b: Side) -> Iterator[str]:
    arms = [{block.arm for block in side.run.blocks} for side in (a, b)]
    for arm in sorted(arms[0] ^ arms[1]):
        yield f"only {'A' if arm in arms[0] else 'B'} has arm {arm}"
    changed = [
        arm for arm in sorted(arms[0] & arms[1]) if fingerprint_digest(a.run, arm) != fingerprint_digest(b.run, arm)
    ]
    if not changed:
        return
    named = list(_named_differences(a.run, b.run, changed))
    yield from named[:DIFFERENCES_SHOWN]
    if len(named) > DIFFERENCES_SHOWN:
        yield f"and {len(named) - DIFFERENCES_SHOWN} more fields"
    if not named:
        yield f"fingerprints of {', '.join(changed)}"


def _named_differences(a: StoredRun, b: StoredRun, arms: list[str]) -> Iterator[str]:
    for name in ("engine", "request", "workloads"):
        yield from _unequal(name, getattr(a.screening, name), getattr(b.screening, name))
    yield from _unequal("host", a.header.get("host"), b.header.get("host"))
    for arm in arms:
        blocks = [next(block for block in run.blocks if block.arm == arm) for run in (a, b)]
        for section in ("fingerprints", "capacity"):
            yield from _unequal(f"{arm}.{section}", *(block.manifest.get(section) for block in blocks))


def _unequal(name: str, left: Any, right: Any) -> Iterator[str]:
    flat = [
        dict(flatten(asdict(value) if is_dataclass(value) and not isinstance(value, type) else value))
        for value in (left, right)
    ]
    for path in dict.fromkeys([*flat[0], *flat[1]]):
        if path.rpartition(".")[2] in _VOLATILE:
            continue
        values = [facts.get(path, "nothing") for facts in flat]
        if values[0] != values[1]:
            yield f"{name}.{path}: {values[0]} against {values[1]}"
