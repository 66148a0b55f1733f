"""The audit of a stored screening, from its files alone: the last word on whether its timings may be shown.

Strategy: whole blocks first (labels, log, capacity), then rows in batches of pairs (bijection with the plan,
partners, stamps, counters against expectations, answers), then exclusions. Nothing raises: what is wrong is a
finding, and findings decide the verdict. A void finding takes its whole pair out of the estimate, a bad row its unit
and the partner units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from harness.analysis import audit_rows, exclusions, recheck
from harness.analysis.audit_blocks import audit_blocks, audit_bodies
from harness.analysis.bodies import BOUNDS, Bodies, audit_answers, audit_expectations, audit_payloads
from harness.analysis.effects import roles
from harness.analysis.exclusions import Tally
from harness.analysis.grid import Layout, grids, known_blocks
from harness.analysis.ledger import Ledger
from harness.model.findings import Verdict
from harness.model.rulebook import RULES

if TYPE_CHECKING:
    from harness.analysis.grid import Grid
    from harness.model.findings import Finding
    from harness.model.stored import StoredRun

COLUMNS = tuple(
    dict.fromkeys(
        (
            *audit_rows.COLUMNS,
            *exclusions.COLUMNS,
            *recheck.COLUMNS,
            *BOUNDS,
            "answer",
            "planned_tokens",
            "rules",
            "sim_max_late_ns",
        )
    )
)
"""Columns of `requests` that the audit reads: a reader of large folders may load just these and `metrics.COLUMNS`."""


class Collector(Protocol):
    """Something else that wants to see every grid while the rows are at hand."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns it reads."""

    def add(self, grid: Grid) -> None:
        """Take one grid."""


def audit(run: StoredRun, *, layout: Layout | None = None, also: Sequence[Collector] = ()) -> Verdict:
    """Check everything that can be checked again, and account for every row. `also` sees the same grids."""
    ledger = Ledger()
    ledger.extend(run.file_findings)
    audit_blocks(run, ledger)
    layout = layout or Layout(run.plan)
    wanted = tuple(dict.fromkeys((*COLUMNS, *(name for collector in also for name in collector.columns))))
    tally = Tally()
    columns = audit_rows.PlanColumns(layout)
    for grid in grids(run, layout, wanted):
        for collector in also:
            collector.add(grid)
        _audit_grid(grid, run, columns, ledger)
        planned = [grid.layout.blocks[block.position] for block in grid.blocks]
        exclusions.exclude(grid, planned, ledger.void_blocks, roles(run.plan, run.screening.baseline), tally)
    _unplanned_rows(run, layout, tally)
    _not_loaded(run, ledger)
    _without_partner(tally, ledger)
    _failures(run, tally, ledger)
    if tally.rows != tally.paired + tally.excluded:
        words = f"{tally.rows:,} rows in, {tally.paired:,} paired, {tally.excluded:,} excluded"
        ledger.add("audit.arithmetic", run.run, words)
    findings = ledger.findings()
    return Verdict(
        status=_status(findings),
        findings=findings,
        rows=tally.rows,
        paired=tally.paired,
        excluded=tally.excluded,
        excluded_units=tuple(tally.units),
        failures={arm: dict(counts) for arm, counts in tally.failures.items()},
    )


def _audit_grid(grid: Grid, run: StoredRun, columns: audit_rows.PlanColumns, ledger: Ledger) -> None:
    planned = [grid.layout.blocks[block.position] for block in grid.blocks]
    audit_rows.audit_rows(grid, planned, columns, ledger)
    audit_rows.audit_warmups(grid, planned, ledger)
    bodies = Bodies(run, grid.layout)
    for block in grid.blocks:
        audit_bodies(block, bodies.of(block).fields, ledger)
    audit_payloads(grid, planned, bodies, ledger)
    bounds = audit_expectations(grid, planned, bodies, run.screening, ledger)
    audit_answers(grid, planned, bodies, ledger)
    _recorded_rules(grid, ledger)
    recheck.recheck(grid, planned, run.screening, bodies=bodies, bounds=bounds, ledger=ledger)
    _bad_rows(grid, ledger)


def _bad_rows(grid: Grid, ledger: Ledger) -> None:
    """A finding for every row that is no measurement, so that each exclusion has its reason in the list."""
    codes, names = exclusions.reasons(grid)
    if not codes.any():
        return
    causes = _causes(grid)
    for i, k in zip(*codes.nonzero(), strict=True):
        block, rule_id = grid.blocks[i], names[codes[i, k]]
        cause = causes(rule_id, int(i), int(k))
        title = RULES[rule_id].title if rule_id in RULES else "excluded while measuring"
        known = rule_id if rule_id in RULES else "row.failed"
        words = f"{block.path}: {title}{f' ({cause})' if cause else ''}"
        ledger.add(known, grid.layout.keys[k], words, block=block.position)


def _causes(grid: Grid) -> Callable[[str, int, int], str]:
    """What the row itself says of a rule that speaks against it; empty where it says nothing."""
    failure, kinds = grid.codes("failure_kind")
    limited, thresholds = grid.codes("client_limited")
    late = grid.ints("sim_max_late_ns")

    def cause(rule_id: str, i: int, k: int) -> str:
        if rule_id == "row.client_limited" and limited[i, k] >= 0:
            return str(thresholds[limited[i, k]])
        if rule_id == "row.sim_missed" and late.known[i, k]:
            return f"a chunk left {late.values[i, k] / 1e6:.1f} ms late"
        return str(kinds[failure[i, k]]) if failure[i, k] >= 0 else ""

    return cause


def _recorded_rules(grid: Grid, ledger: Ledger) -> None:
    """A committed block must hold no row in which a voiding rule found something while measuring."""
    for i, rule_id in grid.listed("rules"):
        if rule_id in RULES and RULES[rule_id].severity == "void":
            block = grid.blocks[i]
            words = f"rows of this committed block carry {rule_id}, which voids a block"
            ledger.add(rule_id, block.path, words, block=block.position)


def _unplanned_rows(run: StoredRun, layout: Layout, tally: Tally) -> None:
    """Rows of blocks that no position knows, or that are a second folder for one, count as excluded."""
    waiting = {id(block) for block in known_blocks(run, layout)}
    for block in run.blocks:
        if id(block) in waiting:
            waiting.remove(id(block))
        else:
            tally.rows += block.requests.num_rows
            tally.excluded += block.requests.num_rows


def _without_partner(tally: Tally, ledger: Ledger) -> None:
    """A pair that left whole for want of a partner must not leave silently, whatever the reason for the want."""
    for unit in tally.units:
        if unit.rule == "audit.unpaired" and not ledger.has("audit.unpaired"):
            words = f"pair {unit.pair} holds no block to compare {unit.arm} with"
            ledger.add("audit.unpaired", f"block {unit.block}", words, block=unit.block, severity="incomplete")


def _not_loaded(run: StoredRun, ledger: Ledger) -> None:
    blocks = [block.position for block in run.blocks if block.counters is None]
    if blocks:
        words = (
            f"counters of {len(blocks):,} blocks not loaded: idle replicas, resets and windows were not checked again"
        )
        ledger.add("audit.not_rechecked", run.run, words, blocks=len(blocks))


def _failures(run: StoredRun, tally: Tally, ledger: Ledger) -> None:
    """Unequal failure rates: survivors of unequal failures are not comparable, so the comparison is inconclusive."""
    baseline, treatments = roles(run.plan, run.screening.baseline)
    lost = {arm: sum(counts.values()) for arm, counts in tally.failures.items()}
    for treatment in treatments:
        off, on = lost.get(baseline, 0), lost.get(treatment, 0)
        rows_off, rows_on = tally.measured.get(baseline, 0), tally.measured.get(treatment, 0)
        if off * rows_on != on * rows_off:
            detail = (
                f"{treatment}: {on:,} of {rows_on:,} rows failed or were wrong, {baseline}: {off:,} of {rows_off:,};"
                " the comparison is inconclusive"
            )
            by_reason = {arm: tally.failures.get(arm, {}) for arm in (baseline, treatment)}
            ledger.add("audit.failure_rates", f"{treatment} against {baseline}", detail, by_reason=by_reason)


def _status(findings: tuple[Finding, ...]) -> Literal["valid", "incomplete", "void"]:
    severities = {finding.severity for finding in findings}
    if "void" in severities:
        return "void"
    return "incomplete" if "incomplete" in severities else "valid"
