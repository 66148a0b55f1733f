"""The noise floor: what an A/A screening shows where nothing differs but the label, kept under its fingerprint.

For a cell with A/A paired differences d_1 … d_n on the log scale, whose true mean is known to be 0: s0² = Σ d_p² / n.
A mean over m block pairs of an ON/OFF screening of the same set-up would, without any effect, lie within ± t(0.975; n
degrees of freedom) · s0 / √m in 95 % of screenings (normal errors, linear drift counted as noise). That is the floor.
Beside it stands the largest change that any A/A block pair showed, which needs no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scipy import stats

from harness.analysis.cells import Floor
from harness.analysis.manifests import fingerprint_digest

if TYPE_CHECKING:
    from harness.analysis.cells import Cell, EffectTable
    from harness.model.stored import StoredRun

FloorStore = dict[str, dict[str, dict[str, Any]]]
"""fingerprint digest → cell id → {"square_sum": Σ d², "pairs": n, "largest_pct": …, "runs": [...]}: plain JSON."""


def floors_of(run: StoredRun, table: EffectTable) -> FloorStore:
    """The noise floor of an A/A screening. ValueError where the screening is no A/A or its verdict is not usable."""
    if not table.aa:
        raise ValueError(f"{run.run} is no A/A screening: its order holds different arms")
    if table.status == "void":
        raise ValueError(f"{run.run} is void: its spread is no noise floor")
    arm = run.plan.blocks[0].arm
    fingerprint = fingerprint_digest(run, arm)
    if fingerprint is None:
        raise ValueError(f"{run.run} has no block of arm {arm}")
    return {
        fingerprint: {
            effect.cell.id: {
                "square_sum": math.fsum(p.log_ratio**2 for p in effect.per_pair),
                "pairs": effect.pairs,
                "largest_pct": max(abs(p.change_pct) for p in effect.per_pair),
                "runs": [run.run],
            }
            for effect in table.effects
            if effect.pairs
        }
    }


def merge(kept: Mapping[str, Mapping[str, Mapping[str, Any]]], new: FloorStore) -> FloorStore:
    """Pool two stores; a run that is known already is not counted twice."""
    out: FloorStore = {fp: {cell: dict(entry) for cell, entry in cells.items()} for fp, cells in kept.items()}
    for fingerprint, cells in new.items():
        mine = out.setdefault(fingerprint, {})
        for cell, entry in cells.items():
            old = mine.get(cell)
            if old is None:
                mine[cell] = dict(entry)
            elif not set(entry["runs"]) <= set(old["runs"]):
                mine[cell] = {
                    "square_sum": old["square_sum"] + entry["square_sum"],
                    "pairs": old["pairs"] + entry["pairs"],
                    "largest_pct": max(old["largest_pct"], entry["largest_pct"]),
                    "runs": [*old["runs"], *entry["runs"]],
                }
    return out


def floor_for(
    kept: Mapping[str, Mapping[str, Mapping[str, Any]]],
    run: StoredRun,
    cell: Cell,
    *,
    pairs: int,
    arms: tuple[str, ...] | None = None,
) -> Floor | None:
    """The floor of a cell for a mean over `pairs` block pairs, or None where no A/A run has the same fingerprint.

    Where A/A runs of several of the arms exist, the larger floor counts.
    """
    names = arms or tuple(arm.name for arm in run.screening.arms)
    declared = {arm.name for arm in run.screening.arms}
    found = []
    for arm in names:
        fingerprint = fingerprint_digest(run, arm) if arm in declared else None
        entry = kept.get(fingerprint, {}).get(cell.id) if fingerprint else None
        if fingerprint and entry and pairs:
            found.append(_floor(entry, fingerprint, pairs))
    return max(found, key=lambda floor: floor.pct, default=None)


def in_words(change_pct: float, floor: Floor | None) -> str:
    """`effect −0.8 %, A/A floor ±1.1 %`."""
    text = f"effect {_signed(change_pct)} %"
    return text if floor is None else f"{text}, A/A floor ±{floor.pct:.1f} %"


def _floor(entry: Mapping[str, Any], fingerprint: str, pairs: int) -> Floor:
    n = int(entry["pairs"])
    half = float(stats.t.ppf(0.975, n)) * math.sqrt(entry["square_sum"] / n) / math.sqrt(pairs)
    return Floor(
        pct=100 * math.expm1(half),
        aa_pairs=n,
        for_pairs=pairs,
        largest_pct=float(entry["largest_pct"]),
        fingerprint=fingerprint,
        run=", ".join(entry["runs"]),
    )


def _signed(value: float, digits: int = 1) -> str:
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if not text.strip("+-0.") else text.replace("-", "\N{MINUS SIGN}")
