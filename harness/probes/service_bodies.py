"""Bodies of layer 5: built once like those of a screening, then given a salt of this very run.

The text of a namespace never changes, so fixtures are kept between runs; the salt is new in every run, so that a
validation can be repeated against replicas that were not restarted.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from harness.fixtures import FixtureSet, obtain
from harness.model.payload import Payload
from harness.model.screening import Screening
from harness.plan import salt_of
from harness.probes.service_plan import FRESH, ServicePlan, validation_screening


@dataclass(slots=True, kw_only=True)
class Bodies:
    """Payloads and bytes by payload id; ids that end in `~fresh` are the same tokens under another salt."""

    fixtures: FixtureSet
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def planted(self) -> frozenset[int]:
        """Every planted value of every namespace."""
        return frozenset(value for values in self.fixtures.planted().values() for value in values)

    def of(self, payload_id: str) -> tuple[Payload, bytes]:
        """What is known about a body, and its bytes; KeyError where there is none of that id."""
        base = self.fixtures.payload(payload_id.removesuffix(FRESH))
        return self.salted(base, payload_id, base.namespace + payload_id[len(base.payload_id) :])

    def salted(self, base: Payload, payload_id: str, namespace: str) -> tuple[Payload, bytes]:
        """The tokens of `base` in a cache namespace of their own; ids it may share a prefix with are renamed too."""
        salt = salt_of(f"{namespace}/{self.nonce}")
        body = resalted(self.fixtures.body(base.payload_id), salt)
        suffix = payload_id[len(base.payload_id) :]
        payload = replace(
            base,
            payload_id=payload_id,
            namespace=namespace,
            salt=salt,
            sha256=hashlib.sha256(body).hexdigest(),
            nbytes=len(body),
            lcp={name + suffix: tokens for name, tokens in base.lcp.items()},
            lcp_with_answer={name + suffix: tokens for name, tokens in base.lcp_with_answer.items()},
        )
        return payload, body

    def control(self, payload_id: str, number: int) -> tuple[Payload, bytes]:
        """The same tokens once more under a salt that nothing else used."""
        base = self.fixtures.payload(payload_id.removesuffix(FRESH))
        suffix = f"~control-{number}"
        return self.salted(base, base.payload_id + suffix, base.namespace + suffix)


def resalted(body: bytes, salt: str) -> bytes:
    """The same request under another `cache_salt`; nothing else of it changes."""
    document = orjson.loads(body)
    document["cache_salt"] = salt
    return orjson.dumps(document)


def build_bodies(
    screening: Screening,
    plan: ServicePlan,
    *,
    cache: Path,
    root: Path,
    progress: Callable[[int, int], None] | None = None,
) -> Bodies:
    """Build (or find in the cache) every body of the plan; FixtureError where a length cannot be met."""
    derived = validation_screening(screening, plan.composition)
    return Bodies(fixtures=obtain(derived, plan.plan, cache=cache, root=root, progress=progress))
