"""The llm-d benchmark report, version 0.2: one document an arm, validated by that project's own package.

The format aggregates over all requests of a run, which mixes cold with reused and small with large; the paired cells,
which are what this project measures, travel in `results.observability.kvabba` (the schema keeps that part open).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from llmd_benchmark_report import BenchmarkReportV02

from harness import __version__
from harness.model.errors import HarnessError
from harness.model.findings import Verdict
from harness.model.stored import StoredRun
from harness.report.llmd_rows import ArmRows, Floats, statistics
from harness.report.provenance import simulated, unvalidated
from harness.report.verdicts import WORDS, verdict_sentence
from harness.report.words import arm_names

if TYPE_CHECKING:
    from harness.analysis import Effect, Effects

VERSION = "0.2"


def export_llmd(
    run: StoredRun, verdict: Verdict, effects: Effects, folder: Path, *, void: bool = False
) -> tuple[Path, ...]:
    """Write `<screening>-<run>-<arm>.json` for every arm into `folder`; returns the files.

    HarnessError where the verdict is void, unless `void` allows it; the documents then say so.
    """
    if verdict.status == "void" and not void:
        raise HarnessError(
            f"{run.run} is void: its timings are no evidence and are not exported",
            hint="Add --void to export it for diagnosis; the documents will say that they are void.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for arm in arm_names(run):
        document = llmd_document(run, verdict, effects, arm)
        path = folder / f"{run.screening.name}-{run.run}-{arm}.json"
        path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        written.append(path)
    return tuple(written)


def llmd_document(run: StoredRun, verdict: Verdict, effects: Effects, arm: str) -> dict[str, Any]:
    """The report of one arm as plain JSON values, valid by the schema (pydantic's ValidationError otherwise)."""
    rows = ArmRows(run, verdict, arm)
    sessions = _values(effects, "session_wall", arm)
    results: dict[str, Any] = {
        "request_performance": {"aggregate": _performance(rows, effects, arm)},
        "observability": {"kvabba": _cells(verdict, effects, arm)},
    }
    if len(sessions):
        found = {"total": rows.sessions, "succeeded": len(sessions), "session_duration": statistics(sessions, "s")}
        results["session_performance"] = {"sessions": found}
    document = {
        "version": VERSION,
        "run": _run(run, verdict, arm),
        "scenario": {"stack": _stack(run, arm), "load": _load(run, arm, rows)},
        "results": results,
    }
    BenchmarkReportV02.model_validate(document)
    return document


def _run(run: StoredRun, verdict: Verdict, arm: str) -> dict[str, Any]:
    words = [f"verdict: {WORDS[verdict.status].lower()}"]
    words += ["simulated"] if simulated(run) else []
    words += ["unvalidated"] if unvalidated(run) else []
    facts: dict[str, Any] = {
        "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"kvabba:{run.screening.digest}:{run.run}:{arm}")),
        "eid": run.screening.digest,
        "description": f"{run.screening.name}, arm {arm} ({', '.join(words)}). {verdict_sentence(verdict)}",
        "keywords": ["kvabba", run.screening.name, arm, *words],
    }
    started = _started(run.run)
    return facts | ({"time": {"start": started}} if started else {})


def _started(label: str) -> str | None:
    """The run's id is its start in UTC, `20261130-174611` (a suffix tells runs of one second apart)."""
    try:
        return datetime.strptime(label[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat()
    except ValueError:
        return None


def _stack(run: StoredRun, arm: str) -> list[dict[str, Any]]:
    """Replicas and services as generic components: the accelerators of an `inference_engine` are not always known."""
    block = next((block for block in run.blocks if block.plays == arm), None)
    fingerprints = _mapping(block.manifest.get("fingerprints")) if block else {}
    engine = run.screening.engine
    declared = _played(run, arm)
    components = [
        _component(
            replica.name,
            engine.kind,
            _mapping(fingerprints.get(replica.name)),
            {"kind_draft": "inference_engine", "model": engine.model},
        )
        for replica in engine.replicas
    ]
    if declared is not None:
        components += [
            _component(
                name,
                run.screening.service(name).kind,
                _mapping(fingerprints.get(name)),
                {"kind_draft": "kv_cache_service"},
            )
            for name in declared.services
        ]
    return components


def _played(run: StoredRun, arm: str) -> Any:
    names = {block.plays: block.arm for block in run.plan.blocks}
    return run.screening.arm(names[arm]) if arm in names else None


def _component(label: str, tool: str, fingerprint: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    text = orjson.dumps(dict(fingerprint), default=str, option=orjson.OPT_SORT_KEYS)
    return {
        "metadata": {"label": label, "cfg_id": hashlib.sha256(text).hexdigest()},
        "standardized": {
            "kind": "generic",
            "tool": tool,
            "tool_version": str(fingerprint.get("version") or "unknown"),
            **more,
        },
        "native": {"config": orjson.loads(text)},
    }


def _load(run: StoredRun, arm: str, rows: ArmRows) -> dict[str, Any]:
    lengths = rows.column("prompt_tokens")
    sessions = run.screening.workloads.sessions
    windows = run.screening.workloads.concurrency
    facts: dict[str, Any] = {
        "tool": "kvabba",
        "tool_version": __version__,
        "source": "random",
        "input_seq_len": {"distribution": "other", "value": float(lengths.mean()) if len(lengths) else 0.0},
        "concurrency": max(windows.windows) if windows else 1,
    }
    if len(lengths):
        facts["input_seq_len"] |= {"min": int(lengths.min()), "max": int(lengths.max())}
    if sessions:
        facts["multi_turn"] = {"enabled": True, "max_turns": {"distribution": "fixed", "value": sessions.turns}}
    return {
        "metadata": {
            "cfg_id": run.screening.digest,
            "description": run.screening.description or None,
            "treatment": arm,
            "treatment_group": run.screening.name,
        },
        "standardized": facts,
        "native": {
            "config": {
                "order": list(run.screening.order),
                "seed": run.screening.seed,
                "factor": list(run.screening.factor),
            }
        },
    }


def _performance(rows: ArmRows, effects: Effects, arm: str) -> dict[str, Any]:
    tokens = rows.column("completion_tokens")
    return {
        "requests": _present(
            total=rows.all.num_rows,
            failures=rows.failures,
            input_length=statistics(rows.column("prompt_tokens"), "count"),
            output_length=statistics(tokens, "count"),
            request_size=statistics(rows.column("payload_bytes"), "bytes"),
        ),
        "latency": _present(
            time_to_first_token=statistics(rows.seconds("start_ns", "first_content_ns"), "s"),
            request_latency=statistics(rows.seconds("start_ns", "done_ns"), "s"),
            time_per_output_token=statistics(rows.seconds_per_token(), "s/token"),
        ),
        "throughput": _present(output_token_rate=statistics(_values(effects, "window_throughput", arm), "tokens/s")),
    }


def _cells(verdict: Verdict, effects: Effects, arm: str) -> dict[str, Any]:
    """The paired cells of this arm, and the verdict they stand under."""
    table = effects.table
    own = [effect for effect in table.effects if arm in (effect.treatment, table.baseline)]
    return {
        "verdict": verdict.status,
        "answer": effects.answer,
        "baseline": table.baseline,
        "cells": [_cell(effect) for effect in own if effect.units],
    }


def _cell(effect: Effect) -> dict[str, Any]:
    return {
        "cell": effect.cell.id,
        "units": effect.cell.unit,
        "treatment": effect.treatment,
        "baseline_median": effect.baseline_median,
        "treatment_median": effect.treated_median,
        "mean_change_percent": effect.mean_change_pct,
        "per_block_pair_percent": [pair.change_pct for pair in effect.per_pair],
        "low_percent": effect.low_pct,
        "high_percent": effect.high_pct,
        "no_interval": effect.no_interval,
        "aa_floor_percent": None if effect.floor is None else effect.floor.pct,
    }


def _values(effects: Effects, metric: str, arm: str) -> Floats:
    """Every observation of one arm in one metric; the baseline's are the same beside every treatment, so taken once."""
    table = effects.table
    treatment = table.treatments[0] if arm == table.baseline and table.treatments else arm
    found = [effect for effect in table.effects if effect.cell.metric == metric and effect.treatment == treatment]
    arrays = [
        effect.observations.baseline if arm == table.baseline else effect.observations.treated for effect in found
    ]
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
