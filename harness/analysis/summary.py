"""Everything a report shows, computed in one pass over the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.answer import answer
from harness.analysis.audit import audit
from harness.analysis.drift import Drift, drift
from harness.analysis.effects import Gathering, Measured, effects, measure
from harness.analysis.grid import Layout
from harness.analysis.outputs import OutputCount, OutputSummary, output_summary
from harness.analysis.published import Published, beside_published

if TYPE_CHECKING:
    from harness.analysis.cells import EffectTable
    from harness.model.findings import Verdict
    from harness.model.stored import StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """All results of one screening."""

    table: EffectTable
    drift: tuple[Drift, ...]
    outputs: OutputSummary
    published: Published | None
    """None where the run has none of the published cells."""
    answer: str


def analyse(run: StoredRun, verdict: Verdict, *, floors: Mapping[str, Any] | None = None) -> Effects:
    """Effects, drift, output checks, published comparison and the answer. `floors`: kept A/A noise floors, if any."""
    return _conclude(run, verdict, measure(run, verdict), output_summary(run), floors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What the audit's pass over the rows has collected: effects follow from it without reading a row again."""

    run: StoredRun
    verdict: Verdict
    measured: Measured
    outputs: OutputSummary

    def conclude(self, *, floors: Mapping[str, Any] | None = None) -> Effects:
        """The same as `analyse`. `floors`: kept A/A noise floors, if any."""
        return _conclude(self.run, self.verdict, self.measured, self.outputs, floors)


def gather(run: StoredRun) -> Gathered:
    """Audit, metrics and output counts in one pass over the rows: blocks may be read when asked for, each once."""
    layout = Layout(run.plan)
    gathering, count = Gathering(layout), OutputCount(run, layout)
    verdict = audit(run, layout=layout, also=(gathering, count))
    return Gathered(run=run, verdict=verdict, measured=gathering.finish(verdict), outputs=count.finish())


def examine(run: StoredRun, *, floors: Mapping[str, Any] | None = None) -> tuple[Verdict, Effects]:
    """`audit` and `analyse` in one pass over the rows."""
    gathered = gather(run)
    return gathered.verdict, gathered.conclude(floors=floors)


def _conclude(
    run: StoredRun, verdict: Verdict, measured: Measured, outputs: OutputSummary, floors: Mapping[str, Any] | None
) -> Effects:
    table = effects(run, verdict, measured=measured, floors=floors)
    published = beside_published(table, run.screening.workloads)
    return Effects(
        table=table,
        drift=drift(run, verdict, measured=measured),
        outputs=outputs,
        published=published if published.compared else None,
        answer=answer(table, verdict),
    )
