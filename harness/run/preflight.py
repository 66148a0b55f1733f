"""What is compared before a block measures anything: cache capacity with the declaration and with earlier blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.model.findings import Finding
from harness.rules.facts import finding
from harness.run.ports import Capacity

if TYPE_CHECKING:
    from harness.model.screening import EngineSpec


def capacity_findings(
    engine: EngineSpec, here: Mapping[str, Capacity], earlier: Mapping[str, Capacity] | None, block: int
) -> list[Finding]:
    """`capacity.changed`: block size as declared, and both figures equal in all blocks (experiment.md §3, 5)."""
    found = []
    for replica, capacity in here.items():
        if capacity.block_size not in (None, engine.block_size):
            words = f"{replica}: blocks of {capacity.block_size} tokens, the declaration says {engine.block_size}"
            found.append(finding("capacity.changed", f"block {block}", words, block=block))
        before = (earlier or {}).get(replica)
        if before is not None and before != capacity:
            words = (
                f"{replica}: {_words(capacity)} in block {block}, {_words(before)} in an earlier block:"
                " the two arms would not have the same cache"
            )
            found.append(finding("capacity.changed", f"block {block}", words, block=block))
    return found


def stored_capacity(manifest: Mapping[str, Any]) -> dict[str, Capacity]:
    """Capacity per replica as a committed manifest records it."""
    return {name: Capacity(**values) for name, values in manifest.get("capacity", {}).items()}


def _words(capacity: Capacity) -> str:
    return f"{capacity.num_blocks} blocks of {capacity.block_size} tokens"
