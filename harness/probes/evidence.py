"""A validation on disk: `results/validation/<digest>/validation.json`, `checks.parquet`, `service-requests.parquet`.

One folder a fingerprint. A run of single layers renews those and keeps the rest, each with its own time label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from harness.model.errors import SchemaError
from harness.probes.columns import schema
from harness.probes.results import LAYERS, LayerName, LayerResult, result_from_json
from harness.store import durable

FOLDER = "validation"
FILE = "validation.json"
SCHEMA = 1
_SHORT = 16

Status = Literal["passed", "failed", "partly"]

CHECKS = schema(
    {
        "fingerprint_digest": "str",
        "screening": "str",
        "arm": "str",
        "layer": "str",
        "status": "str",
        "verdict": "str",
        "missing": "str",
        "check": "str",
        "trials": "int",
        "failures": "int",
        "expected": "str",
        "ok": "bool",
        "detail": "str",
        "at_utc": "str",
        "seconds": "float",
    }
)
"""Columns of `checks.parquet`: a row a check; a layer without checks has one row with `check` null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What is known about one arm's set-up."""

    fingerprint_digest: str
    screening: str
    arm: str
    identity: Mapping[str, Any]
    """What the digest is over."""
    layers: Mapping[LayerName, LayerResult]
    at_utc: Mapping[LayerName, str]
    """Layer → when it ran; a label."""
    processes: Mapping[str, str] = field(default_factory=dict)
    """Process name → fingerprint digest as it ran in layers 5 and 6."""

    @property
    def failed(self) -> tuple[LayerName, ...]:
        """Layers that failed, in order."""
        return self._of("failed")

    @property
    def passed(self) -> tuple[LayerName, ...]:
        """Layers that passed, in order."""
        return self._of("passed")

    @property
    def not_validated(self) -> tuple[LayerName, ...]:
        """Layers that did not run here, in order; one that was never asked for counts too."""
        return tuple(name for name in LAYERS if name not in (*self.passed, *self.failed))

    @property
    def status(self) -> Status:
        """`failed` where any layer did, `passed` only where all did."""
        if self.failed:
            return "failed"
        return "partly" if self.not_validated else "passed"

    def _of(self, status: str) -> tuple[LayerName, ...]:
        return tuple(name for name in LAYERS if name in self.layers and self.layers[name].status == status)

    def renewed(self, older: Validation | None) -> Validation:
        """This validation with the layers that only the older one ran."""
        if older is None or older.fingerprint_digest != self.fingerprint_digest:
            return self
        return replace(
            self,
            layers={**older.layers, **self.layers},
            at_utc={**older.at_utc, **self.at_utc},
            processes=self.processes or older.processes,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the rows of the report beside the layers."""
        return {
            "schema": SCHEMA,
            "fingerprint_digest": self.fingerprint_digest,
            "screening": self.screening,
            "arm": self.arm,
            "identity": dict(self.identity),
            "status": self.status,
            "layers": {name: result.to_json() for name, result in self.layers.items()},
            "at_utc": dict(self.at_utc),
            "processes": dict(self.processes),
            "rows": rows(self),
        }


def rows(validation: Validation) -> list[dict[str, Any]]:
    """The report's table: number, layer, status in words, summary, missing part, verdict, time label."""
    shown = []
    for number, name in enumerate(LAYERS, start=1):
        result = validation.layers.get(name)
        shown.append(
            {
                "number": number,
                "layer": name,
                "status": "not validated" if result is None else result.status.replace("_", " "),
                "summary": "not asked for" if result is None else result.summary,
                "missing": None if result is None else result.missing,
                "verdict": None if result is None else result.verdict,
                "checks": 0 if result is None else len(result.checks),
                "at_utc": validation.at_utc.get(name),
            }
        )
    return shown


def from_json(data: Mapping[str, Any]) -> Validation:
    """The inverse of `to_json`; SchemaError where the file is of another kind."""
    try:
        if data["schema"] != SCHEMA:
            raise SchemaError(f"validation.json has schema {data['schema']}, this program reads {SCHEMA}")
        return Validation(
            fingerprint_digest=data["fingerprint_digest"],
            screening=data["screening"],
            arm=data["arm"],
            identity=data["identity"],
            layers={name: result_from_json(layer) for name, layer in data["layers"].items()},
            at_utc=data["at_utc"],
            processes=data["processes"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"validation.json is not readable: {error!r}") from error


def folder_of(results: Path, fingerprint_digest: str) -> Path:
    """Where the validation of a fingerprint lies."""
    return results / FOLDER / fingerprint_digest[:_SHORT]


def load_validation(results: Path, fingerprint_digest: str) -> Validation | None:
    """The stored validation of a fingerprint, None where there is none; SchemaError where it cannot be read."""
    path = folder_of(results, fingerprint_digest) / FILE
    return _read(path) if path.is_file() else None


def latest_of(results: Path, screening: str, arm: str) -> Validation | None:
    """The newest stored validation of an arm by name, whatever its fingerprint: shows what has changed since."""
    found = [_read(path) for path in sorted((results / FOLDER).glob(f"*/{FILE}"))]
    mine = [one for one in found if (one.screening, one.arm) == (screening, arm)]
    return max(mine, key=lambda one: max(one.at_utc.values(), default=""), default=None)


def save(results: Path, validation: Validation, tables: Mapping[str, pa.Table]) -> Path:
    """Write the folder of a validation; `tables` are further Parquet files by stem. Returns the folder."""
    folder = folder_of(results, validation.fingerprint_digest)
    durable.write_whole(folder / FILE, durable.to_json(validation.to_json()))
    for stem, table in {**tables, "checks": checks_table(validation)}.items():
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        durable.write_whole(folder / f"{stem}.parquet", sink.getvalue().to_pybytes())
    return folder


def checks_table(validation: Validation) -> pa.Table:
    """Every check of every layer."""
    return pa.Table.from_pylist(
        [line for name in LAYERS if name in validation.layers for line in _lines(validation, name)], schema=CHECKS
    )


def _lines(validation: Validation, name: LayerName) -> Sequence[Mapping[str, Any]]:
    result = validation.layers[name]
    shared = {
        "fingerprint_digest": validation.fingerprint_digest,
        "screening": validation.screening,
        "arm": validation.arm,
        "layer": name,
        "status": result.status,
        "verdict": result.verdict,
        "missing": result.missing,
        "at_utc": validation.at_utc.get(name),
        "seconds": result.seconds,
    }
    if not result.checks:
        return [shared]
    return [
        {
            **shared,
            "check": check.name,
            "trials": check.trials,
            "failures": check.failures,
            "expected": check.expected,
            "ok": check.ok,
            "detail": check.detail,
        }
        for check in result.checks
    ]


def _read(path: Path) -> Validation:
    try:
        return from_json(orjson.loads(path.read_bytes()))
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"{path} is no JSON: {error}") from error
