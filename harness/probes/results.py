"""What a validation layer says: a status in words, its checks, and the evidence behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

LayerName = Literal["representation", "copy_ordering", "allocator", "full_pool", "service", "protocol", "provenance"]
Status = Literal["passed", "failed", "not_validated"]

LAYERS: tuple[LayerName, ...] = (
    "representation",
    "copy_ordering",
    "allocator",
    "full_pool",
    "service",
    "protocol",
    "provenance",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One named check: how many trials, how many failed, and whether failing is what it is there to show."""

    name: str
    trials: int
    failures: int
    expected: Literal["pass", "fail"] = "pass"
    """`fail` marks a negative control: it must fail, or the probe is blind."""
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True where the check showed what it must show: no failure, or (negative control) every trial failing."""
        if self.trials == 0:
            return False
        return self.failures == 0 if self.expected == "pass" else self.failures == self.trials


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """The outcome of one layer."""

    layer: LayerName
    status: Status
    summary: str
    checks: tuple[Check, ...] = ()
    missing: str | None = None
    """The part this machine lacks, where the status is `not_validated`."""
    verdict: str | None = None
    """A finer word than failed: `transferred state`, `model`, `drift candidate`, `insensitive probe`, …"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, checks included, with `ok` written out for readers of the file."""
        data = asdict(self)
        data["checks"] = [{**asdict(check), "ok": check.ok} for check in self.checks]
        return data


def result_from_json(data: Mapping[str, Any]) -> LayerResult:
    """The inverse of `LayerResult.to_json`; raises KeyError or TypeError on anything else."""
    fields = {key: value for key, value in data.items() if key != "checks"}
    checks = tuple(Check(**{key: value for key, value in check.items() if key != "ok"}) for check in data["checks"])
    return LayerResult(**fields, checks=checks)


def from_checks(
    layer: LayerName, checks: Sequence[Check], *, facts: Mapping[str, Any], seconds: float | None = None
) -> LayerResult:
    """Passed where every check is ok. A negative control that did not fail makes the layer an insensitive probe."""
    blind = [check for check in checks if check.expected == "fail" and not check.ok]
    broken = [check for check in checks if check.expected == "pass" and not check.ok]
    trials = sum(check.trials for check in checks)
    if not checks:
        return not_validated(layer, "no check ran", facts=facts)
    if broken:
        names = ", ".join(f"{check.name} {check.failures}/{check.trials}" for check in broken)
        return LayerResult(
            layer=layer, status="failed", summary=f"failed: {names}", checks=tuple(checks), facts=facts, seconds=seconds
        )
    if blind:
        names = ", ".join(f"{check.name} {check.failures}/{check.trials}" for check in blind)
        return LayerResult(
            layer=layer,
            status="failed",
            verdict="insensitive probe",
            summary=f"the negative control did not fail as it must: {names}",
            checks=tuple(checks),
            facts=facts,
            seconds=seconds,
        )
    return LayerResult(
        layer=layer,
        status="passed",
        summary=f"{len(checks)} checks, {trials} trials",
        checks=tuple(checks),
        facts=facts,
        seconds=seconds,
    )


def not_validated(layer: LayerName, missing: str, *, facts: Mapping[str, Any] | None = None) -> LayerResult:
    """The layer could not run here; `missing` names the part that is not on this machine."""
    return LayerResult(
        layer=layer, status="not_validated", summary=f"not validated: {missing}", missing=missing, facts=facts or {}
    )
