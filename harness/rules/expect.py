"""How many tokens a planned request must find in which cache, from the rendered token counts alone.

Symbols: n = prompt tokens of the request, bs = block of the prefix cache, C = chunk of the shared tier, LCP = longest
common prefix of two *rendered* prompts, in tokens. Sources: interfaces.md §6 (what engines and pool count) and
experiment.md §7 (expectation per request).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.model.counting import Expectation
from harness.model.payload import Payload
from harness.model.planned import PlannedRequest
from harness.model.screening import EngineSpec, Reach


def floor_to(tokens: int, step: int) -> int:
    """The largest multiple of `step` (tokens) that is at most `tokens`."""
    return tokens // step * step


def expectation(request: PlannedRequest, *, payload: Payload, engine: EngineSpec, reach: Reach) -> Expectation:
    """Closed ranges of (H_local, H_ext), in tokens, for one request of one arm.

    Local: `max over earlier payloads on the same replica of floor(min(LCP, n-1)/bs)*bs`. The upper end takes the LCP
    with the earlier prompt *and its answer*, because blocks filled by generated tokens are cached as well.

    External: the shared tier holds `c = floor(LCP/C)*C` of whatever reaches it (reach `all`: every replica's earlier
    payloads; `replica`: the replica's own; `none`: nothing), and `H_ext = max(0, c - H_local)`, less 1 where c = n
    (the last token is always computed). The upper end again counts the answer where the tier may hold it: LMCache 0.5.4
    stores generated tokens, the simulated pool only where its settings say so (`EngineSpec.pool_keeps_output`).
    A tier of each replica alone may keep single blocks (an engine's own offload) or whole chunks (a connector's), which
    no declaration says: with reach `replica` the lower end counts chunks and the upper end blocks.

    A request with no earlier payload of its namespace is cold: all four are 0.
    """
    n = payload.prompt_tokens
    local_min, local_max = _local_range(request.after_same_replica, payload, engine)
    held = _held_by_tier(request, reach)
    if not held:
        return Expectation(local_min=local_min, local_max=local_max, external_min=0, external_max=0)
    chunk = engine.chunk_size or engine.block_size
    c_min = floor_to(min(_longest(held, payload.lcp), n), chunk)
    reaching = payload.lcp_with_answer if reach == "replica" or engine.pool_keeps_output else payload.lcp
    c_max = floor_to(min(_longest(held, reaching), n), engine.block_size if reach == "replica" else chunk)
    return Expectation(
        local_min=local_min,
        local_max=local_max,
        external_min=external_hits(c_min, local_max, n),
        external_max=external_hits(c_max, local_min, n),
    )


def new_chunks(request: PlannedRequest, *, payload: Payload, engine: EngineSpec, reach: Reach) -> int:
    """The least number of chunks that the shared tier must have written once this request's stores have ended.

    `floor(n/C) - floor(LCP/C)` with the longest prefix, answers included, that earlier requests can have stored; 0
    where the tier is not shared (nobody waits for it).
    """
    if reach != "all":
        return 0
    chunk = engine.chunk_size or engine.block_size
    held = _longest(request.after_any_replica, payload.lcp_with_answer)
    return max(0, payload.prompt_tokens // chunk - min(held, payload.prompt_tokens) // chunk)


def external_hits(pool_hit: int, local_hits: int, prompt_tokens: int) -> int:
    """H_ext = max(0, c - H_local), less 1 where c = n (interfaces.md §6, rule 7). Tokens."""
    beyond = max(0, pool_hit - local_hits)
    return beyond - 1 if beyond and pool_hit == prompt_tokens else beyond


def total_range(expected: Expectation) -> tuple[int, int]:
    """Closed range of H_local + H_ext that follows from the four bounds, in tokens.

    With h local hits the tier adds c - h, so the sum is max(h, c): from `external_min = c_min - local_max` follows a
    sum of at least `external_min + local_max`; from `external_max = c_max - local_min` one of at most
    `max(local_max, external_max + local_min)`.
    """
    least = expected.external_min + expected.local_max if expected.external_min else expected.local_min
    most = max(expected.local_max, expected.external_max + expected.local_min if expected.external_max else 0)
    return least, most


def reuse_share(local_hits: int, external_hits: int, prompt_tokens: int) -> float:
    """(H_local + H_ext) / n: independent of what an engine version calls external queries."""
    return (local_hits + external_hits) / prompt_tokens


def _local_range(earlier: Iterable[str], payload: Payload, engine: EngineSpec) -> tuple[int, int]:
    n, block = payload.prompt_tokens, engine.block_size
    ids = tuple(earlier)
    most = floor_to(min(_longest(ids, payload.lcp_with_answer), n - 1), block)
    if engine.hybrid and not _same_prompt_reused(ids, payload, block):
        # State is saved only at step ends and at floor(n/bs)*bs: a shorter shared prefix may hit nothing at first.
        return 0, most
    return floor_to(min(_longest(ids, payload.lcp), n - 1), block), most


def _same_prompt_reused(ids: Iterable[str], payload: Payload, block: int) -> bool:
    n = payload.prompt_tokens
    return n % block != 0 and any(payload.lcp[payload_id] == n for payload_id in ids)


def _held_by_tier(request: PlannedRequest, reach: Reach) -> tuple[str, ...]:
    if reach == "all":
        return request.after_any_replica
    return request.after_same_replica if reach == "replica" else ()


def _longest(ids: Iterable[str], lcp: Mapping[str, int]) -> int:
    """Longest common prefix with any of the earlier payloads; 0 where there is none. An unknown id is a KeyError."""
    return max((lcp[payload_id] for payload_id in ids), default=0)
