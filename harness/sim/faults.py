"""Which faults hit which request.

A fault's `when` is "always" or a table; every condition given must hold:
  nth          index, or list of indices, counted from 0 among requests that satisfy the other conditions
  salt         the request's cache salt contains this
  namespace    salt, or the first 4,096 characters of the prompt, contain this
  request_id   the x-request-id contains this
  probability  a coin with this chance, seeded by `seed` (default 0): the same requests in every run
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.sim.fault_kinds import FAULTS, Value

NAMESPACE_CHARACTERS = 4096


class When(BaseModel):
    """Conditions that select the requests a fault hits."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    nth: Annotated[int, Field(ge=0)] | list[Annotated[int, Field(ge=0)]] | None = None
    salt: str | None = None
    namespace: str | None = None
    request_id: str | None = None
    probability: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: int = 0


class FaultSpec(BaseModel):
    """One entry of `faults`: a kind, whom it hits, and the kind's parameters beside them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str
    when: Literal["always"] | When = "always"

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, value: str) -> str:
        if value not in FAULTS:
            raise ValueError(f"unknown fault; allowed: {', '.join(sorted(FAULTS))}")
        return value

    @model_validator(mode="after")
    def _known_parameters(self) -> Self:
        known = FAULTS[self.kind].parameters
        for name, value in (self.model_extra or {}).items():
            if name not in known:
                raise ValueError(f"{self.kind}: unknown parameter {name!r}; allowed: {', '.join(known) or 'none'}")
            default, allowed = known[name].default, known[name].allowed
            if allowed and value not in allowed:
                raise ValueError(f"{self.kind}.{name}: {value!r}; allowed: {', '.join(allowed)}")
            if allowed:
                continue
            wanted = bool if isinstance(default, bool) else (int, float)
            if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
                kind = "true or false" if wanted is bool else "a number"
                raise ValueError(f"{self.kind}.{name}: expected {kind}, got {value!r}")
        return self

    def get(self, name: str) -> Value:
        """A parameter's value, or its default."""
        value: Value = (self.model_extra or {}).get(name, FAULTS[self.kind].parameters[name].default)
        return value

    def number(self, name: str) -> float:
        """A numeric parameter."""
        return float(self.get(name))

    def count(self, name: str) -> int:
        """A whole-number parameter."""
        return int(self.get(name))

    def text(self, name: str) -> str:
        """A textual parameter."""
        return str(self.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a selector can look at."""

    salt: str = ""
    text: str = ""
    request_id: str = ""


@dataclass(slots=True)
class _Rule:
    spec: FaultSpec
    seen: int = 0
    coin: random.Random = field(default_factory=random.Random)

    def hits(self, facts: Facts) -> bool:
        when = self.spec.when
        if isinstance(when, str):
            return True
        if when.salt is not None and when.salt not in facts.salt:
            return False
        if when.namespace is not None and when.namespace not in facts.salt + "\n" + facts.text[:NAMESPACE_CHARACTERS]:
            return False
        if when.request_id is not None and when.request_id not in facts.request_id:
            return False
        index, self.seen = self.seen, self.seen + 1
        if when.nth is not None and index not in (when.nth if isinstance(when.nth, list) else [when.nth]):
            return False
        return when.probability is None or self.coin.random() < when.probability


class ActiveFaults:
    """The faults that hit one request."""

    def __init__(self, specs: list[FaultSpec]) -> None:
        self._specs = {spec.kind: spec for spec in specs}

    def get(self, kind: str) -> FaultSpec | None:
        """The fault of this kind, if it hits."""
        return self._specs.get(kind)

    def __contains__(self, kind: str) -> bool:
        return kind in self._specs

    def kinds(self) -> list[str]:
        """Every kind that hits."""
        return list(self._specs)


class FaultBook:
    """The faults of one process, and how often each selector has been asked."""

    def __init__(self, specs: list[FaultSpec]) -> None:
        self._rules = [_Rule(spec, coin=random.Random(_seed(spec.when))) for spec in specs]

    def select(self, facts: Facts, accept: Callable[[FaultSpec], bool] | None = None) -> ActiveFaults:
        """The faults that hit this request; advances the selector of every accepted fault once."""
        rules = [rule for rule in self._rules if accept is None or accept(rule.spec)]
        return ActiveFaults([rule.spec for rule in rules if rule.hits(facts)])

    def process(self, kind: str) -> FaultSpec | None:
        """A fault of the whole process, whatever its `when`."""
        return next((r.spec for r in self._rules if r.spec.kind == kind), None)


def _seed(when: Any) -> int:
    return when.seed if isinstance(when, When) else 0
