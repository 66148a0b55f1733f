"""Namespaces and salts: what makes a request cold.

Strategy: a namespace is a hash of everything that tells one conversation of one block pair from another, and of
nothing that differs between the two blocks of the pair (arm, position, attempt, time). ON and OFF bytes are
therefore equal, while every pair, size, output length, window and index starts cold.
"""

from __future__ import annotations

import hashlib

import orjson

from harness.model.planned import Workload
from harness.model.screening import Placement

NAMESPACE_HEX = 32
"""Characters of a namespace: 128 bits, so two of a million collide with probability 1e-27."""

SALT_PREFIX = "k-"
SALT_HEX = 24


def namespace(
    *,
    screening: str,
    pair: int,
    workload: Workload,
    size: str,
    output: int | None,
    window: int | None,
    placement: Placement | None,
    index: int,
) -> str:
    """Lower-case hex digest of the eight fields that define a namespace; None where a field does not apply."""
    fields = [screening, pair, workload, size, output, window, placement, index]
    return hashlib.sha256(b"kvabba-namespace\n" + orjson.dumps(fields)).hexdigest()[:NAMESPACE_HEX]


def salt_of(namespace_hash: str) -> str:
    """The `cache_salt` of a namespace: short, `[0-9a-z-]` only, its own hash of the namespace.

    It is a separate field, so a validation can hold the text fixed and change the salt alone.
    """
    digest = hashlib.sha256(b"kvabba-salt\n" + namespace_hash.encode()).hexdigest()
    return SALT_PREFIX + digest[:SALT_HEX]
