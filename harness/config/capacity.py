"""Does what is declared fit into what is declared: context length, prefix cache, shared tier.

A prompt beyond the context length fails at once; a unit beyond the prefix cache, or a block beyond the pool, fails as
"treatment not applied" after half a run. All three are plain arithmetic before anything starts. Units: tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.config import schema
from harness.config.draft import Draft
from harness.model.errors import Issue

LMCACHE_WATERMARK = 0.8
"""Share of a pool at which LMCache begins to evict (interfaces.md §5); the simulated pool's default as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Longest:
    """The longest conversation of one size: prompt of its last turn and what is generated at most."""

    path: str
    prompt: int
    output: int
    together: int = 1
    """Conversations that share one replica at the same time."""
    count: int = 1
    """Conversations of a block."""


def capacity_issues(draft: Draft) -> Iterator[Issue]:
    """Issues for every size that cannot fit."""
    engine, workloads, request, checks = draft.engine, draft.workloads, draft.request, draft.checks
    if engine is None or workloads is None or request is None or checks is None:
        return
    longest = list(_longest(workloads, request, len(engine.replicas)))
    slack = checks.count_tolerance
    length = max_model_len(engine)
    if length is not None:
        for item in longest:
            need = item.prompt + item.output + slack
            if need > length:
                yield Issue(
                    path=item.path, message=f"needs up to {need} tokens of context", allowed=f"at most {length}"
                )
    blocks = engine.options.get("settings", {}).get("num_gpu_blocks") if engine.kind == "sim" else None
    if isinstance(blocks, int):
        for item in longest:
            need = (item.prompt + item.output + slack) * item.together
            if need > blocks * engine.block_size:
                message = f"needs {need} tokens of a replica's cache at once"
                yield Issue(path=item.path, message=message, allowed=f"at most {blocks} × {engine.block_size}")
    yield from _pool(engine, longest)


def max_model_len(engine: schema.EngineTable) -> int | None:
    """The declared context length: `settings.max_model_len` or `--max-model-len`; None where it is not declared."""
    declared = engine.options.get("settings", {}).get("max_model_len")
    if isinstance(declared, int):
        return declared
    args: Sequence[str] = engine.options.get("args", [])
    for option, value in pairwise(args):
        if option == "--max-model-len" and value.isdigit():
            return int(value)
    return None


def _pool(engine: schema.EngineTable, longest: Sequence[_Longest]) -> Iterator[Issue]:
    """A pool must hold every conversation of a block below its watermark: an eviction voids the block."""
    settings = engine.options.get("cache_settings", {})
    capacity = settings.get("capacity_chunks")
    if engine.chunk_size is None or not isinstance(capacity, int):
        return
    need = sum((item.prompt + item.output) // engine.chunk_size * item.count for item in longest)
    watermark = settings.get("watermark", LMCACHE_WATERMARK)
    if need > capacity * watermark:
        path = "engine.options.cache_settings.capacity_chunks"
        message = f"a block stores about {need} chunks, eviction begins at {int(capacity * watermark)}"
        yield Issue(path=path, message=message, allowed=f"at least {int(need / watermark) + 1}")


def _longest(w: schema.WorkloadsTable, request: schema.RequestTable, replicas: int) -> Iterator[_Longest]:
    limit = request.max_tokens
    if w.chains:
        for i, size in enumerate(w.chains.sizes):
            yield _Longest(
                path=f"workloads.chains.sizes[{i}].tokens", prompt=size.tokens, output=limit, count=w.chains.chains
            )
    if w.sessions:
        cells = len(w.sessions.placements) * w.sessions.sessions
        for i, size in enumerate(w.sessions.sizes):
            prompt = size.tokens + (w.sessions.turns - 1) * w.sessions.turn_tokens
            yield _Longest(path=f"workloads.sessions.sizes[{i}].tokens", prompt=prompt, output=limit, count=cells)
    if w.generation:
        for i, size in enumerate(w.generation.sizes):
            path = f"workloads.generation.sizes[{i}].tokens"
            yield _Longest(
                path=path, prompt=size.tokens, output=max(w.generation.outputs), count=len(w.generation.outputs)
            )
    if w.concurrency:
        prompt = w.concurrency.size.tokens + (w.concurrency.turns - 1) * w.concurrency.turn_tokens
        most = max(w.concurrency.windows)
        # An alternating session may stand on either replica, so all of them can meet on one.
        together = most if "alternating" in w.concurrency.placements else -(-most // max(1, replicas))
        count = sum(w.concurrency.windows) * len(w.concurrency.placements)
        yield _Longest(
            path="workloads.concurrency.size.tokens", prompt=prompt, output=limit, together=together, count=count
        )
