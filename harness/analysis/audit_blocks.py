"""The audit of whole blocks: labels, order, log of manifests, capacity, declarations, digests of bodies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harness.analysis import manifests
from harness.model.rulebook import RULES
from harness.rules.treatment import zero_exposure

if TYPE_CHECKING:
    from harness.analysis.ledger import Ledger
    from harness.model.planned import PlannedBlock
    from harness.model.stored import StoredBlock, StoredRun

Said = set[tuple[str, int | None]]
"""(rule, block) that reading the files has found already: not said twice."""


def audit_blocks(run: StoredRun, ledger: Ledger) -> None:
    """Everything that can be said about blocks without their rows."""
    known = {(found.rule, found.block) for found in run.file_findings}
    _positions(run, ledger, known)
    _log(run, ledger, known)
    planned_at = {block.position: block for block in run.plan.blocks}
    for block in run.blocks:
        if block.position in planned_at:
            _labels(block, planned_at[block.position], ledger)
        _origin(run, block, ledger)
        _own_findings(block, ledger)
    _equal(run, ledger)
    for old in run.excluded:
        words = _reason(old.reason)
        ledger.add(
            "run.excluded_block",
            old.path,
            f"block {old.position} ({old.arm}) is archived: {words}",
            reason=dict(old.reason),
        )
    for old in run.superseded:
        ledger.add(
            "run.superseded_block", old.path, f"block {old.position} ({old.arm}) was superseded: {_reason(old.reason)}"
        )


def audit_bodies(block: StoredBlock, payloads: Mapping[str, Mapping[str, Any]], ledger: Ledger) -> None:
    """What payloads.json says of each body = what the manifest says of its file (which the reader compares)."""
    listed = manifests.file_digests(block.manifest)
    if not listed:
        return
    for payload_id, payload in payloads.items():
        name, digest = str(payload["path"]), payload["sha256"]
        on_file = listed.get(f"fixtures/{name}") or listed.get(f"warmup-fixtures/{name}") or listed.get(name)
        if on_file is None:
            ledger.add(
                "audit.file_missing",
                f"{block.path}/{name}",
                f"the manifest lists no body for {payload_id}",
                block=block.position,
            )
        elif on_file != digest:
            words = f"{payload_id}: payloads.json says {digest}, the manifest {on_file}"
            ledger.add("audit.digest", f"{block.path}/{name}", words, block=block.position)


def audit_exposure(arm: str, position: int, rows: Iterable[tuple[int, int | None]], ledger: Ledger) -> None:
    """An arm that shares its cache must show it somewhere in the block. `rows`: (expected least, external hits)."""
    ledger.extend(zero_exposure(arm, rows, block=position))


def _positions(run: StoredRun, ledger: Ledger, known: Said) -> None:
    """Every planned position has one block; which partner is missing; blocks that no position knows."""
    plan = run.plan
    planned_at = {block.position: block for block in plan.blocks}
    have = Counter(block.position for block in run.blocks)
    committed = set(manifests.log(run.header) or ())
    for position, count in have.items():
        if position not in planned_at:
            ledger.add(
                "audit.row_extra", f"block {position}", f"the order has {len(plan.blocks)} blocks", block=position
            )
        elif count > 1:
            ledger.add(
                "audit.block_replaced", f"block {position}", f"{count} folders claim this position", block=position
            )
    run_pairs = {planned_at[p].pair for p in have if p in planned_at}
    for planned in plan.blocks:
        if planned.position in have:
            continue
        subject = f"block {planned.position}"
        words = f"{planned.arm}, pair {planned.pair}"
        if planned.position in committed and ("audit.file_missing", planned.position) not in known:
            ledger.add(
                "audit.file_missing", subject, f"{words}: was committed, but its folder is gone", block=planned.position
            )
        if planned.pair in run_pairs:
            detail = f"{words}: its partner has been run, it has not; the pair cannot enter the estimate"
            ledger.add("audit.unpaired", subject, detail, block=planned.position, severity="incomplete")
        else:
            ledger.add("audit.block_missing", subject, f"{words}: not run yet", block=planned.position)


def _log(run: StoredRun, ledger: Ledger, known: Said) -> None:
    """Each block's manifest is the one that the screening's append-only log recorded for its position."""
    log = manifests.log(run.header)
    if log is None:
        return
    for block in run.blocks:
        if ("audit.block_replaced", block.position) in known:
            continue
        recorded = log.get(block.position)
        if recorded is None:
            ledger.add(
                "audit.block_replaced", block.path, "the log of committed blocks does not know it", block=block.position
            )
        elif recorded != block.manifest_sha256:
            words = f"the log recorded manifest {recorded}, the folder holds {block.manifest_sha256}"
            ledger.add("audit.block_replaced", block.path, words, block=block.position)


def _labels(block: StoredBlock, planned: PlannedBlock, ledger: Ledger) -> None:
    """Order, folder and manifest name the same arm, role and pair (rows: `audit_rows`)."""
    wanted: dict[str, Any] = {"arm": planned.arm, "plays": planned.plays, "pair": planned.pair}
    claims: list[tuple[str, Mapping[str, Any]]] = [
        ("the folder", {"arm": block.arm, "plays": block.plays, "pair": block.pair}),
        ("the manifest", manifests.labels(block.manifest)),
    ]
    for source, said in claims:
        for name, value in wanted.items():
            if name in said and said[name] is not None and said[name] != value:
                words = f"{source} says {name} = {said[name]}, the declared order {value}"
                ledger.add("audit.arm_label", block.path, words, block=block.position)


def _origin(run: StoredRun, block: StoredBlock, ledger: Ledger) -> None:
    """A block belongs to the run whose folder holds it; bodies alone cannot tell, they are equal in every run."""
    said = block.manifest.get("run")
    if said is not None and said not in run.run.split("+"):
        words = f"the manifest is of run {said}, the folder of run {run.run}"
        ledger.add("audit.block_replaced", block.path, words, block=block.position)


def _own_findings(block: StoredBlock, ledger: Ledger) -> None:
    """What the run noted in the manifest and no row can tell: warnings, and anything void in a committed block.

    Findings that exclude units are left to the rows, which carry them.
    """
    for noted in manifests.findings(block.manifest):
        if noted["rule"] in RULES and noted["severity"] in ("void", "warning"):
            ledger.add(
                noted["rule"],
                str(noted.get("subject", block.path)),
                str(noted.get("detail", "")),
                block=block.position,
                severity=noted["severity"],
            )


def _equal(run: StoredRun, ledger: Ledger) -> None:
    """Capacity and declaration must be equal in all blocks: against the first block, and the run's own declaration."""
    if not run.blocks:
        return
    first = run.blocks[0]
    reference = manifests.capacity(first.manifest)
    for block in run.blocks:
        mine = manifests.capacity(block.manifest)
        if mine != reference:
            words = f"{_short(mine)} here, {_short(reference)} in block {first.position}"
            ledger.add("capacity.changed", block.path, words, block=block.position)
        digest = manifests.declaration_digest(block.manifest)
        if digest is not None and digest != run.screening.digest:
            words = f"declaration {digest} here, {run.screening.digest} in the screening"
            ledger.add("audit.settings", block.path, words, block=block.position)
        elif digest is None:
            ledger.add("audit.settings", block.path, "the manifest names no declaration digest", block=block.position)
        if mine is None:
            ledger.add("capacity.changed", block.path, "the manifest names no cache capacity", block=block.position)


def _reason(reason: Mapping[str, Any]) -> str:
    parts = [str(reason[name]) for name in ("rule", "key", "detail", "fix") if reason.get(name)]
    return "; ".join(parts) or "no reason noted"


def _short(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
