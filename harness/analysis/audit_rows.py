"""The audit of rows: one row a planned request, every planned column as planned, partners equal, stamps that add up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis.grid import Layout

if TYPE_CHECKING:
    from harness.analysis.grid import BoolArray, Grid
    from harness.analysis.ledger import Ledger
    from harness.model.planned import PlannedBlock
    from harness.model.stored import StoredBlock

_TEXTS = ("workload", "unit", "step", "role", "size", "placement", "window", "replica", "payload_id", "check")
_INTS = ("seq", "turn", "nominal_tokens", "session", "max_tokens", "forced_tokens", "answer_in_history")
_PLANNED = (*_TEXTS, *_INTS, "time_scale")
_PLANNED_OF = attrgetter(*_PLANNED)
_STAMPS = ("start_ns", "connected_ns", "first_content_ns", "last_content_ns", "done_ns", "recorded_ns")
_SPANS = (
    ("ttft_ns", "start_ns", "first_content_ns"),
    ("ttft_after_connect_ns", "connected_ns", "first_content_ns"),
    ("connect_ns", "connect_start_ns", "connected_ns"),
)
COLUMNS = (
    "block",
    "arm",
    "plays",
    "pair",
    *_TEXTS,
    *_INTS,
    *_STAMPS,
    "connect_start_ns",
    *(name for name, _, _ in _SPANS),
    "time_scale",
    "payload_sha256",
    "connection_reused",
    "ok",
)


class PlanColumns:
    """The planned values of every cell, made once a pair: blocks of a pair share their requests."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._kept: dict[int, dict[str, list[Any]]] = {}

    def of(self, block: PlannedBlock) -> dict[str, list[Any]]:
        """Column → value per key of the layout (None where the block does not plan the key)."""
        ident = id(block.requests)
        if ident not in self._kept:
            self._kept = {ident: self._make(block)}  # only the latest: blocks come pair by pair
        return self._kept[ident]

    def _make(self, block: PlannedBlock) -> dict[str, list[Any]]:
        rows: list[tuple[Any, ...]] = [(None,) * len(_PLANNED)] * len(self._layout.keys)
        for request, values in zip(block.requests, map(_PLANNED_OF, block.requests), strict=True):
            rows[self._layout.index[request.key]] = values
        return dict(zip(_PLANNED, map(list, zip(*rows, strict=True)), strict=True))


def audit_rows(grid: Grid, planned: Sequence[PlannedBlock], columns: PlanColumns, ledger: Ledger) -> None:
    """Everything about rows but counters, answers and exclusions."""
    _structure(grid, ledger)
    _labels(grid, planned, ledger)
    tables = [columns.of(block) for block in planned]
    _as_planned(grid, tables, ledger)
    _partners(grid, planned, ledger)
    _stamps(grid, ledger)
    _order(grid, ledger)


def audit_warmups(grid: Grid, planned: Sequence[PlannedBlock], ledger: Ledger) -> None:
    """Warm-ups: each planned one has its row, and no measured row hides among them."""
    for block, plan in zip(grid.blocks, planned, strict=True):
        keys: list[str | None] = block.warmups["key"].to_pylist() if "key" in block.warmups.column_names else []
        wanted: list[str | None] = [request.key for request in plan.warmups]
        # Warm-up keys may repeat by design (one unit a replica): compare as multisets.
        for key in {*wanted, *keys}:
            here, there = keys.count(key), wanted.count(key)
            if here < there:
                ledger.add(
                    "audit.row_missing", f"{block.path}: {key}", "a planned warm-up has no row", block=block.position
                )
            elif here > there:
                ledger.add(
                    "audit.row_extra",
                    f"{block.path}: {key}",
                    "a warm-up that the plan does not know",
                    block=block.position,
                )


def _structure(grid: Grid, ledger: Ledger) -> None:
    """Bijection of plan and rows."""
    for i in grid.stray.null_keys:
        block = grid.blocks[i]
        ledger.add("audit.null_key", block.path, "a row has no key", block=block.position)
    for i, key in grid.stray.unknown:
        block = grid.blocks[i]
        ledger.add("audit.row_extra", key, f"{block.path}: the plan has no such request", block=block.position)
    for i, key in grid.stray.duplicates:
        block = grid.blocks[i]
        ledger.add("audit.duplicate_row", key, f"{block.path}: a second row of this request", block=block.position)
    for i, k in np.argwhere(grid.planned & ~grid.present):
        block = grid.blocks[i]
        ledger.add(
            "audit.row_missing", grid.layout.keys[k], f"{block.path}: planned, but without a row", block=block.position
        )


def _labels(grid: Grid, planned: Sequence[PlannedBlock], ledger: Ledger) -> None:
    """The rows of a block carry the arm, role, pair and position that the declared order gives it."""
    for name in ("arm", "plays"):
        stored = grid.texts(name)
        for i, (block, plan) in enumerate(zip(grid.blocks, planned, strict=True)):
            wanted = getattr(plan, name)
            wrong = grid.present[i] & (stored[i] != wanted)
            _mislabelled(block, name, {str(value) for value in stored[i][wrong]}, wanted, ledger)
    for name, attribute in (("block", "position"), ("pair", "pair")):
        column = grid.ints(name)
        for i, (block, plan) in enumerate(zip(grid.blocks, planned, strict=True)):
            wanted = getattr(plan, attribute)
            wrong = grid.present[i] & ((column.values[i] != wanted) | ~column.known[i])
            _mislabelled(block, name, {str(value) for value in column.values[i][wrong]}, wanted, ledger)


def _mislabelled(block: StoredBlock, name: str, said: set[str], wanted: object, ledger: Ledger) -> None:
    if said:
        words = f"rows say {name} = {', '.join(sorted(said))}, the declared order {wanted}"
        ledger.add("audit.arm_label", block.path, words, block=block.position)


def _as_planned(grid: Grid, tables: Sequence[dict[str, list[Any]]], ledger: Ledger) -> None:
    """Every planned column of every row says what the plan says."""
    for name in _TEXTS:
        stored = grid.texts(name)
        wanted = np.array([table[name] for table in tables], dtype=object)
        _report(grid, name, stored=stored, wanted=wanted, differs=stored != wanted, ledger=ledger)
    for name in _INTS:
        column = grid.ints(name)
        wanted = np.array([[-1 if v is None else int(v) for v in table[name]] for table in tables], dtype=np.int64)
        absent = np.array([[v is None for v in table[name]] for table in tables], dtype=np.bool_)
        differs = np.where(absent, column.known, ~column.known | (column.values != wanted))
        _report(grid, name, stored=column.values, wanted=wanted, differs=differs, ledger=ledger)
    scale = grid.floats("time_scale")
    wanted_scale = np.array([[np.nan if v is None else float(v) for v in table["time_scale"]] for table in tables])
    differs = scale != wanted_scale
    _report(grid, "time_scale", stored=scale, wanted=wanted_scale, differs=differs, ledger=ledger)


def _report(grid: Grid, name: str, *, stored: Any, wanted: Any, differs: BoolArray, ledger: Ledger) -> None:
    for i, k in np.argwhere(differs & grid.present):
        block = grid.blocks[i]
        words = f"{block.path}: {name} = {stored[i, k]}, planned {wanted[i, k]}"
        rule_id = "audit.replica_mismatch" if name == "replica" else "audit.plan_mismatch"
        ledger.add(rule_id, grid.layout.keys[k], words, block=block.position, column=name)


def _partners(grid: Grid, planned: Sequence[PlannedBlock], ledger: Ledger) -> None:
    """Every row of a pair against the row of the pair's first block: bytes, replica, kind of connection."""
    first: dict[int, int] = {}
    reference = np.array([first.setdefault(block.pair, i) for i, block in enumerate(planned)], dtype=np.int64)
    both = grid.present & grid.present[reference]
    sha, _ = grid.codes("payload_sha256")
    replica, _ = grid.codes("replica")
    reused = grid.flags("connection_reused")
    ok = grid.flags("ok")
    # A request that failed before it was sent has no digest: it leaves the estimate, and is no mismatch.
    unsent = (sha < 0) & (ok.values == 0)
    unsent = unsent | unsent[reference]
    checks: tuple[tuple[str, BoolArray, str], ...] = (
        (
            "audit.sha_mismatch",
            ((sha != sha[reference]) | (sha < 0)) & ~unsent,
            "the bytes sent differ, or their digest is missing",
        ),
        ("audit.replica_mismatch", replica != replica[reference], "sent to another replica"),
        (
            "audit.settings",
            (reused.values != reused.values[reference]) & reused.known & reused.known[reference],
            "one used a new connection, the other a kept one",
        ),
    )
    for rule_id, differs, words in checks:
        for i, k in np.argwhere(differs & both):
            block, other = grid.blocks[i], grid.blocks[reference[i]]
            ledger.add(
                rule_id,
                grid.layout.keys[k],
                f"{words} (blocks {other.position} and {block.position})",
                block=block.position,
            )


def _stamps(grid: Grid, ledger: Ledger) -> None:
    """Stages in order, and derived durations equal to the difference of their stamps."""
    stamps = {name: grid.ints(name) for name in (*_STAMPS, "connect_start_ns")}
    for earlier, later in pairwise(_STAMPS):
        a, b = stamps[earlier], stamps[later]
        wrong = a.known & b.known & (b.values < a.values)
        _derived(grid, wrong, f"{later} lies before {earlier}", ledger)
    for name, begin, end in _SPANS:
        a, b, span = stamps[begin], stamps[end], grid.ints(name)
        exists = a.known & b.known
        wrong = (span.known != exists) | (exists & (span.values != b.values - a.values))
        _derived(grid, wrong, f"{name} is not {end} - {begin}", ledger)


def _derived(grid: Grid, wrong: BoolArray, words: str, ledger: Ledger) -> None:
    for i, k in np.argwhere(wrong & grid.present):
        block = grid.blocks[i]
        ledger.add("audit.derived", grid.layout.keys[k], f"{block.path}: {words}", block=block.position)


def _order(grid: Grid, ledger: Ledger) -> None:
    """Requests outside windows ran one after another in the planned order, the same in every block."""
    single = np.array([request.window is None for request in grid.layout.requests])
    seq = np.array([request.seq for request in grid.layout.requests])
    keys = np.flatnonzero(single)
    keys = keys[np.argsort(seq[keys], kind="stable")]
    start, recorded = grid.ints("start_ns"), grid.ints("recorded_ns")
    for i, block in enumerate(grid.blocks):
        here = keys[(start.known[i] & recorded.known[i] & grid.present[i])[keys]]
        early = np.flatnonzero(start.values[i][here[1:]] < recorded.values[i][here[:-1]])
        for k in here[1:][early]:
            words = f"{block.path}: started before the request ahead of it in the plan was recorded"
            ledger.add("audit.plan_mismatch", grid.layout.keys[k], words, block=block.position, column="seq")
