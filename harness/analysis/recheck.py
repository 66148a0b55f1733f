"""Counter rules once more, from the stored rows: vectorised over all of them, worded by `harness.rules`.

Strategy: `suspects` computes, with arrays, exactly where a rule of `harness.rules.check` would find something (a
property test holds the two against each other). Only those rows are turned back into request windows and given to
`check_window`, so that a finding reads the same while measuring and in the audit. Concurrency windows are few: they
go through `check_concurrency` whole. What needs the counters table (other replicas, resets, windows) is checked where
it was loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.audit_blocks import audit_exposure
from harness.analysis.counted import StoredCounters
from harness.analysis.expected import pool_share
from harness.analysis.rebuild import request_window, windows
from harness.model.counting import Counter
from harness.rules.check import check_window
from harness.rules.facts import required
from harness.rules.windows import check_concurrency

if TYPE_CHECKING:
    from harness.analysis.bodies import Bodies
    from harness.analysis.grid import BoolArray, Grid, IntArray, Ints
    from harness.analysis.ledger import Ledger
    from harness.model.planned import PlannedBlock
    from harness.model.screening import Arm, EngineSpec, Screening

COLUMNS = (
    "ok",
    "http_status",
    "failure_kind",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "planned_tokens",
    "local_queries",
    "local_hits",
    "external_queries",
    "external_hits",
    "prompt_tokens_counted",
    "computed_tokens",
    "preemptions",
    "pool_hit_tokens",
    "pool_loaded_chunks",
    "pool_evicted_chunks",
)
AT_REPLICA: Mapping[str, Counter] = {
    "local_queries": Counter.LOCAL_QUERIES,
    "local_hits": Counter.LOCAL_HITS,
    "external_queries": Counter.EXTERNAL_QUERIES,
    "external_hits": Counter.EXTERNAL_HITS,
    "prompt_tokens_counted": Counter.PROMPT_TOKENS,
    "computed_tokens": Counter.COMPUTED_TOKENS,
}


def recheck(
    grid: Grid,
    planned: Sequence[PlannedBlock],
    screening: Screening,
    *,
    bodies: Bodies,
    bounds: IntArray,
    ledger: Ledger,
) -> None:
    """All counter rules over one grid. `bounds`: allowed hits (4, blocks, keys), as `audit_expectations` gives."""
    flagged = suspects(grid, planned, screening, bounds)
    external, least = grid.ints("external_hits"), bounds[2]
    columns = {name: grid.ints(name) for name in AT_REPLICA}
    for i, (block, plan) in enumerate(zip(grid.blocks, planned, strict=True)):
        arm = screening.arm(plan.arm)
        stored = None if block.counters is None else StoredCounters(block.counters, grid.layout)
        here = set(np.flatnonzero(flagged[i]).tolist())
        if stored is not None:
            here |= {grid.layout.index[key] for key in stored.suspects(plan, screening)}
            _as_counted(grid, i, plan, stored=stored, columns=columns, ledger=ledger)
        for k in sorted(here):
            if grid.present[i, k]:
                window = request_window(
                    grid,
                    i,
                    k,
                    plan=plan,
                    screening=screening,
                    bodies=bodies,
                    stored=stored,
                    bounds=bounds[:, i, k],
                )
                ledger.extend(check_window(window) if window is not None else ())
        if stored is not None:
            for whole in windows(
                grid, i, plan=plan, screening=screening, bodies=bodies, stored=stored, bounds=bounds[:, i]
            ):
                ledger.extend(check_concurrency(whole))
        _treatment(grid, i, arm, external=external, least=least, ledger=ledger)


def suspects(grid: Grid, planned: Sequence[PlannedBlock], screening: Screening, bounds: IntArray) -> BoolArray:
    """(blocks, keys): where `check_window` would find something, judged by the row's own columns."""
    arms = [screening.arm(plan.arm) for plan in planned]
    return _Facts(grid, arms, screening.engine, bounds).suspects()


class _Facts:
    """The columns of one grid and the rules as array expressions; names follow `harness.rules`."""

    def __init__(self, grid: Grid, arms: Sequence[Arm], engine: EngineSpec, bounds: IntArray) -> None:
        self._column = {name: grid.ints(name) for name in COLUMNS if name not in ("failure_kind", "http_status")}
        self._local_min: IntArray = bounds[0]
        self._local_max: IntArray = bounds[1]
        self._external_min: IntArray = bounds[2]
        self._external_max: IntArray = bounds[3]
        requests = grid.layout.requests
        self._single: BoolArray = grid.present & np.array([request.window is None for request in requests])
        self._cold: BoolArray = np.array([not request.after_any_replica for request in requests])
        self._engine = engine
        self._shares: BoolArray = np.array([[arm.reach != "none"] for arm in arms])
        seen = self["pool_hit_tokens"].known | self["pool_loaded_chunks"].known | self["pool_evicted_chunks"].known
        self._pooled: BoolArray = seen | np.array([[bool(arm.services)] for arm in arms])
        self._needed = [required(engine, arm) for arm in arms]
        ok = self["ok"]
        self._ok: BoolArray = ok.known & (ok.values == 1)
        self._n = self["prompt_tokens"]

    def __getitem__(self, name: str) -> Ints:
        return self._column[name]

    def suspects(self) -> BoolArray:
        """Any rule."""
        always = self._leaks() | self._missing() | self._losses()
        found: BoolArray = self._single & (
            always | (self._ok & (self._sums() | self._shortfalls() | self._arithmetic()))
        )
        return found

    def _leaks(self) -> BoolArray:
        local, external, pool = self["local_hits"], self["external_hits"], self["pool_hit_tokens"]
        local_max, most = self._local_max, self._external_max
        judged = self._ok | self._cold
        total = np.maximum(local_max, np.where(most > 0, most + self._local_min, 0))
        beside = np.where(local.known, local.values, 0)
        fine = (external.values <= most) & ((beside > local_max) | (beside + external.values <= total))
        outside = external.known & (external.values != 0) & ~fine
        over = local.known & (local.values > local_max)
        found: BoolArray = (judged & (over | outside)) | (pool.known & (pool.values != 0) & self._cold)
        return found

    def _missing(self) -> BoolArray:
        out = np.zeros_like(self._single)
        for name, counter in AT_REPLICA.items():
            needs = np.array([[counter in needed] for needed in self._needed])
            out |= needs & ~self[name].known
        return out

    def _losses(self) -> BoolArray:
        preempted, evicted = self["preemptions"], self["pool_evicted_chunks"]
        found: BoolArray = (preempted.known & (preempted.values != 0)) | (evicted.known & (evicted.values != 0))
        return found

    def _sums(self) -> BoolArray:
        n, local, external = self._n, self["local_hits"], self["external_hits"]
        queries, counted, planned = self["local_queries"], self["prompt_tokens_counted"], self["planned_tokens"]
        computed, cached = self["computed_tokens"], self["cached_tokens"]
        tier = np.where(external.known, external.values, 0)
        hits = local.values + tier
        sources = computed.known & local.known & (computed.values + hits != n.values)
        named = np.where(cached.known, cached.values != hits, hits != 0)
        differing = (
            (queries.known & (queries.values != n.values))
            | (counted.known & (counted.values != n.values))
            | (planned.values != n.values)
            | sources
        )
        found: BoolArray = (n.known & differing) | (n.known & local.known & named)
        return found

    def _shortfalls(self) -> BoolArray:
        local, external, loaded = self["local_hits"], self["external_hits"], self["pool_loaded_chunks"]
        least, bound = self._external_min, self._local_max
        short = local.known & (local.values < self._local_min)
        beside = np.where(local.known, local.values, 0)
        enough = (external.values >= least) & (beside + external.values >= least + bound)
        untreated = external.known & (least != 0) & ~enough
        unloaded = self._pooled & external.known & (external.values != 0) & ~(loaded.known & (loaded.values != 0))
        found: BoolArray = short | untreated | unloaded
        return found

    def _arithmetic(self) -> BoolArray:
        n, local, external = self._n, self["local_hits"], self["external_hits"]
        asked, pool = self["external_queries"], self["pool_hit_tokens"]
        block, chunk = self._engine.block_size, self._engine.chunk_size or self._engine.block_size
        most = n.values - 1 if self._engine.hybrid else (n.values - 1) // block * block
        outside = (local.values < 0) | (local.values > most)
        if not self._engine.hybrid:
            outside = outside | (local.values % block != 0)
        wanted = n.values if self._engine.external_queries == "n" else n.values - local.values
        wanted = np.where(self._shares, wanted, 0)
        tier = np.where(external.known, external.values, 0)
        queried = asked.known & ((asked.values != wanted) | (tier > asked.values))
        unexplained = (
            pool.known
            & external.known
            & ((external.values != pool_share(pool.values, local.values, n.values)) | (pool.values % chunk != 0))
        )
        found: BoolArray = n.known & local.known & (outside | queried | unexplained)
        return found


def _as_counted(
    grid: Grid, i: int, plan: PlannedBlock, *, stored: StoredCounters, columns: Mapping[str, Ints], ledger: Ledger
) -> None:
    """The counter columns of a row are those of the counters table at the addressed replica."""
    block = grid.blocks[i]
    replica = np.full(len(grid.layout.keys), None, dtype=object)
    for request in plan.requests:
        if request.window is None:
            replica[grid.layout.index[request.key]] = request.replica
    asked = np.array([name is not None for name in replica]) & grid.present[i] & stored.read
    for name, counter in AT_REPLICA.items():
        told, known = stored.at(replica, counter)
        mine = columns[name]
        differs = (known != mine.known[i]) | (known & (told != mine.values[i]))
        for k in np.flatnonzero(asked & differs):
            words = (
                f"{block.path}: {name} = {_or_none(mine.values[i, k], mine.known[i, k])},"
                f" the counters table says {_or_none(told[k], known[k])}"
            )
            ledger.add("audit.derived", grid.layout.keys[k], words, block=block.position)


def _or_none(value: np.int64, known: np.bool_) -> int | None:
    return int(value) if known else None


def _treatment(grid: Grid, i: int, arm: Arm, *, external: Ints, least: IntArray, ledger: Ledger) -> None:
    """A label against the counters: an arm without a tier has no external hit, one that shares has some."""
    block = grid.blocks[i]
    here = grid.present[i] & external.known[i]
    if arm.reach == "none":
        hits = int(external.values[i][here].sum())
        if hits:
            words = f"{block.path}: arm {arm.name} shares nothing, yet its rows hold {hits:,} external hits"
            ledger.add("audit.arm_label", block.path, words, block=block.position)
        return
    rows = [(int(least[i, k]), int(external.values[i, k])) for k in np.flatnonzero(here)]
    audit_exposure(arm.name, block.position, rows, ledger)
    if rows and not any(hits for _, hits in rows) and any(low for low, _ in rows):
        words = f"{block.path}: arm {arm.name} shares its cache, yet no row holds an external hit"
        ledger.add("audit.arm_label", block.path, words, block=block.position)
