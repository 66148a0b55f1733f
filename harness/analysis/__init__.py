"""Pairing, audit and statistics: pure functions of a `StoredRun`.

`audit(run)` gives the verdict, `analyse(run, verdict)` everything a report shows: effects, drift, output checks, the
comparison with the published figures and the answer in words. `examine(run)` gives both in one pass over the rows,
`gather(run)` the verdict and what everything else follows from.
"""

from harness.analysis.answer import answer
from harness.analysis.audit import audit
from harness.analysis.cells import Cell, Effect, EffectTable, Floor, Observations, PairEffect
from harness.analysis.coverage import coverage_study
from harness.analysis.drift import Drift, drift
from harness.analysis.effects import effects
from harness.analysis.exclusions import exclusion_counts
from harness.analysis.floors import FloorStore, floor_for, floors_of, merge
from harness.analysis.manifests import fingerprint_digest
from harness.analysis.outputs import OutputSummary, output_summary
from harness.analysis.power import Need, needs
from harness.analysis.published import Published, beside_published
from harness.analysis.summary import Effects, Gathered, analyse, examine, gather

__all__ = [
    "Cell",
    "Drift",
    "Effect",
    "EffectTable",
    "Effects",
    "Floor",
    "FloorStore",
    "Gathered",
    "Need",
    "Observations",
    "OutputSummary",
    "PairEffect",
    "Published",
    "analyse",
    "answer",
    "audit",
    "beside_published",
    "coverage_study",
    "drift",
    "effects",
    "examine",
    "exclusion_counts",
    "fingerprint_digest",
    "floor_for",
    "floors_of",
    "gather",
    "merge",
    "needs",
    "output_summary",
]
