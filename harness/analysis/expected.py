"""`harness.rules.expect` over whole blocks: the allowed hits of every request as arrays.

Deriving two million expectations one by one takes longer than everything else in the audit together, so the
arithmetic is repeated here on arrays; a property test holds it equal to `harness.rules.expect.expectation` for any
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from harness.analysis.grid import BoolArray, IntArray, Layout
    from harness.model.planned import PlannedRequest
    from harness.model.screening import EngineSpec, Reach


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Longest common prefixes with earlier bodies, in tokens, one entry a key of the layout."""

    known: BoolArray
    """False where payloads.json does not give what is needed."""
    prompt: IntArray
    """n, prompt tokens."""
    same: IntArray
    """Longest LCP with an earlier body on the same replica …"""
    same_answered: IntArray
    """… and with that body and its answer."""
    anywhere: IntArray
    anywhere_answered: IntArray
    repeated: BoolArray
    """Some earlier body on the same replica is the very same prompt."""
    sent_here: BoolArray
    sent_anywhere: BoolArray


def shared_prefixes(
    requests: Sequence[PlannedRequest], fields: Mapping[str, Mapping[str, Any]], layout: Layout
) -> Prefixes:
    """Look up the prefixes of every request of a block in its payloads."""
    rows = np.full((len(layout.keys), 9), -1, dtype=np.int64)
    for request in requests:
        payload = fields.get(request.payload_id)
        found = None if payload is None else _of(request, payload)
        if found is not None:
            rows[layout.index[request.key]] = found
    return Prefixes(
        known=rows[:, 0] == 1,
        prompt=rows[:, 1],
        same=rows[:, 2],
        same_answered=rows[:, 3],
        anywhere=rows[:, 4],
        anywhere_answered=rows[:, 5],
        repeated=rows[:, 6] == 1,
        sent_here=rows[:, 7] == 1,
        sent_anywhere=rows[:, 8] == 1,
    )


def expected_bounds(seen: Prefixes, engine: EngineSpec, reach: Reach) -> IntArray:
    """(local min, local max, external min, external max), shape (4, keys); -1 where not known."""
    n, block = seen.prompt, engine.block_size
    local_max = _floor(np.minimum(seen.same_answered, n - 1), block)
    local_min = _floor(np.minimum(seen.same, n - 1), block)
    if engine.hybrid:
        # State is saved only at step ends and at floor(n/bs)*bs: a shorter shared prefix may hit nothing at first.
        local_min = np.where(seen.repeated & (n % block != 0), local_min, 0)
    held, least, most = {
        "all": (
            seen.sent_anywhere,
            seen.anywhere,
            seen.anywhere_answered if engine.pool_keeps_output else seen.anywhere,
        ),
        "replica": (seen.sent_here, seen.same, seen.same_answered),
        "none": (np.zeros_like(seen.known), seen.same, seen.same),
    }[reach]
    chunk = engine.chunk_size or block
    external_min = np.where(held, pool_share(_floor(np.minimum(least, n), chunk), local_max, n), 0)
    # A tier of each replica alone may keep single blocks, as engines' own offload does (`harness.rules.expect`).
    grain = block if reach == "replica" else chunk
    external_max = np.where(held, pool_share(_floor(np.minimum(most, n), grain), local_min, n), 0)
    return np.where(seen.known, np.stack([local_min, local_max, external_min, external_max]), -1)


def _of(request: PlannedRequest, payload: Mapping[str, Any]) -> tuple[int, ...] | None:
    """One row of `shared_prefixes`; None where payloads.json lacks a prefix that is needed."""
    n = payload["prompt_tokens"]
    here, anywhere = request.after_same_replica, request.after_any_replica
    if not anywhere:
        return 1, n, 0, 0, 0, 0, 0, 0, 0
    lcp, answered = payload["lcp"], payload["lcp_with_answer"]
    try:
        if len(anywhere) == 1:  # every chain: one body, sent again
            pid = anywhere[0]
            most, replied = lcp[pid], answered[pid]
            return (
                (1, n, most, replied, most, replied, most == n, 1, 1) if here else (1, n, 0, 0, most, replied, 0, 0, 1)
            )
        all_, all_answered = [lcp[pid] for pid in anywhere], [answered[pid] for pid in anywhere]
        # What was sent to this replica is the whole or the half of it: only the half is looked up again.
        same, same_answered = all_, all_answered
        if len(here) != len(anywhere):
            same, same_answered = [lcp[pid] for pid in here], [answered[pid] for pid in here]
    except KeyError:
        return None
    return (
        1,
        n,
        max(same, default=0),
        max(same_answered, default=0),
        max(all_),
        max(all_answered),
        n in same,
        bool(here),
        1,
    )


def _floor(tokens: IntArray, step: int) -> IntArray:
    return tokens // step * step


def pool_share(pool: IntArray, local: IntArray, n: IntArray) -> IntArray:
    """H_ext = max(0, c - H_local), less 1 where c = n."""
    beyond: IntArray = np.maximum(0, pool - local)
    return np.where((beyond > 0) & (pool == n), beyond - 1, beyond)
