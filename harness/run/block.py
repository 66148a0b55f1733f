"""One block: fresh processes of one arm, canary, warm-ups, measured units, stop, commit (or archive).

Strategy: files are sealed only after every process is gone, so that logs are whole. A rule that voids the block raises
inside the live system; teardown happens on the way out, then the block is archived under `excluded/` and the error goes
on to the caller. An interruption leaves the partial folder for `--resume` to supersede.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from harness.model.errors import EngineError, VoidBlock
from harness.model.findings import Finding
from harness.rules.facts import finding
from harness.rules.treatment import zero_exposure
from harness.run import canary
from harness.run.context import Setting, stop_if_void
from harness.run.judging import Judge
from harness.run.preflight import capacity_findings
from harness.run.rows import Identity
from harness.run.windows import Ledger, Windows

if TYPE_CHECKING:
    from harness.model.planned import PlannedBlock
    from harness.run.ports import Capacity, Live
    from harness.store.writer import BlockWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResult:
    """A committed block."""

    manifest_sha256: str
    capacity: Mapping[str, Capacity]
    findings: tuple[Finding, ...]


@dataclass(slots=True, kw_only=True)
class _Record:
    """What the manifest will say; filled as the block goes on."""

    started_utc: str
    started_ns: int
    pools: tuple[str, ...] = ()
    urls: dict[str, str] = field(default_factory=dict)
    fingerprints: dict[str, Any] = field(default_factory=dict)
    capacity: dict[str, Capacity] = field(default_factory=dict)
    canary: list[canary.CanaryProbe] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    contention: dict[str, Any] = field(default_factory=dict)
    live: bool = False


async def run_block(setting: Setting, block: PlannedBlock, earlier: Mapping[str, Capacity] | None) -> BlockResult:
    """Run one block and commit it. `earlier` is the cache capacity of the blocks before, None for the first.

    Raises LeakError or VoidBlock after the block was archived under `excluded/`, EngineError where a part does not
    start or stop, StoreError where the disk is full.
    """
    folder, clock = setting.folder, setting.clock
    record = _Record(started_utc=clock.utc(), started_ns=clock.now_ns())
    setting.pace.report(block, "start")
    with folder.writer(block.position, block.arm) as writer:
        _lay_fixtures(setting, block, writer)
        try:
            await _live(setting, block, earlier, writer, record)
        except VoidBlock as void:
            setting.pace.report(block, "archive", void.key)
            manifest = _manifest(setting, block, record, status="void")
            folder.exclude(writer, block.position, block.arm, manifest, _reason(setting, block, void))
            raise
        except EngineError:
            if not record.live:
                writer.close()
                folder.drop_partial(block.position, block.arm)
            raise
        setting.pace.report(block, "commit")
        manifest = _manifest(setting, block, record, status="committed")
        sha256 = folder.commit(writer, block.position, block.arm, manifest)
    return BlockResult(manifest_sha256=sha256, capacity=record.capacity, findings=tuple(record.ledger.findings))


async def _live(
    setting: Setting,
    block: PlannedBlock,
    earlier: Mapping[str, Capacity] | None,
    writer: BlockWriter,
    record: _Record,
) -> None:
    async with setting.stage.start(setting.arm(block), writer.logs) as live:
        record.live = True
        record.pools, record.urls = live.pools, dict(live.urls)
        record.fingerprints, record.capacity = dict(live.fingerprints), dict(live.capacity)
        await _keep_state(live, writer, "start")
        _stop(record, capacity_findings(setting.screening.engine, live.capacity, earlier, block.position))
        await live.quiesce()
        before = await live.snapshot()
        setting.pace.report(block, "canary")
        record.canary, before = await canary.probe(setting.screening, block, live, before)
        _stop(record, canary.canary_findings(record.canary, block.position))
        windows = Windows(
            setting=setting,
            block=block,
            live=live,
            writer=writer,
            identity=_identity(setting, block, live),
            judge=Judge(setting.fixtures.payload(payload.payload_id) for payload in setting.plan.payloads),
            before=before,
            ledger=record.ledger,
        )
        await windows.run_units(block.warmups)
        await windows.run_units(block.requests)
        record.contention = dict(live.contention())
        await _keep_state(live, writer, "end")
        _stop(record, [*live.health_findings(), *_closing(setting, block, record.ledger)])
        setting.pace.report(block, "stop")


def _closing(setting: Setting, block: PlannedBlock, ledger: Ledger) -> list[Finding]:
    """What can only be said about the block as a whole."""
    found: list[Finding] = []
    arm = setting.arm(block)
    if arm.reach != "none":
        found.extend(zero_exposure(arm.name, ledger.exposure, block=block.position))
    if ledger.late_gaps:
        key, most = max(ledger.late_gaps, key=lambda late: late[1])
        words = (
            f"block {block.position} ({block.arm}): before {len(ledger.late_gaps)} turn(s) the drain outlasted"
            f" the declared idle gap, by at most {most:.3f} s (before {key})"
        )
        found.append(finding("run.gap_exceeded", f"block {block.position}", words, block=block.position, seconds=most))
    return found


def _stop(record: _Record, findings: list[Finding]) -> None:
    record.ledger.findings.extend(findings)
    stop_if_void(findings)


def _identity(setting: Setting, block: PlannedBlock, live: Live) -> Identity:
    return Identity(
        screening=setting.screening.name,
        run=setting.folder.run,
        block=block,
        replicas=setting.replicas,
        pools=live.pools,
    )


def _lay_fixtures(setting: Setting, block: PlannedBlock, writer: BlockWriter) -> None:
    measured = tuple(dict.fromkeys(request.payload_id for request in block.requests))
    warming = tuple(dict.fromkeys(request.payload_id for request in block.warmups))
    setting.fixtures.copy_to(writer.path / "fixtures", measured)
    setting.fixtures.copy_to(writer.path / "warmup-fixtures", warming)
    writer.put("payloads.json", setting.fixtures.payloads_json((*measured, *warming)))


async def _keep_state(live: Live, writer: BlockWriter, when: str) -> None:
    for name, data in (await live.raw_state()).items():
        writer.put(f"metrics/{when}-{name}", data)


def _manifest(setting: Setting, block: PlannedBlock, record: _Record, *, status: str) -> dict[str, Any]:
    """Everything the manifest says but row counts and file digests, which the writer adds."""
    clock, ledger = setting.clock, record.ledger
    block_ns = clock.now_ns() - record.started_ns
    return {
        "kind": "block",
        "status": status,
        "screening": setting.screening.name,
        "run": setting.folder.run,
        "declaration_digest": setting.screening.digest,
        "block": block.position,
        "pair": block.pair,
        "arm": block.arm,
        "plays": block.plays,
        "started_utc": record.started_utc,
        "ended_utc": clock.utc(),
        "urls": record.urls,
        "pools": list(record.pools),
        "fingerprints": record.fingerprints,
        "capacity": {name: asdict(capacity) for name, capacity in record.capacity.items()},
        "canary": [asdict(seen) | {"hits": seen.hits} for seen in record.canary],
        "host": setting.host,
        "contention": record.contention,
        "findings": [asdict(found) for found in ledger.findings],
        "planned": {"requests": len(block.requests), "warmups": len(block.warmups)},
        "time": {
            "block_ns": block_ns,
            "overhead_ns": ledger.overhead_ns,
            "barrier_ns": ledger.barrier_ns,
            "overhead_share": ledger.overhead_ns / block_ns if block_ns else None,
        },
    }


def _reason(setting: Setting, block: PlannedBlock, void: VoidBlock) -> dict[str, Any]:
    return {
        "rule": void.rule,
        "key": void.key,
        "detail": void.message,
        "next_step": void.hint,
        "exit_code": int(void.exit_code),
        "at": setting.clock.utc(),
        "block": block.position,
        "arm": block.arm,
        "pair": block.pair,
        "counts": {"done": setting.pace.done, "total": setting.pace.total},
    }
