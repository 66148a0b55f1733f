"""What a request hits, and the content it gets back: pages, transferred chunks, then the computed tail."""

from __future__ import annotations

import numpy as np

from harness.sim import answers
from harness.sim.blocks import Tokens
from harness.sim.job import Job
from harness.sim.tier import Loaded
from harness.sim.tokens import Tokenizer


def assign_hits(job: Job, *, pages: int, chunk_size: int | None) -> None:
    """Split a prompt into local hits, external hits and the rest, then apply a leak.

    `pages` tokens were found in the replica's own cache. The second tier adds what its chunks hold beyond them, less
    one token where it holds the whole prompt, because the last token must always be computed.
    """
    job.local = pages
    found = job.lease.chunks * (chunk_size or 0)
    job.loadable = job.external = max(0, found - pages - (1 if found == job.size else 0))
    leak = job.faults.get("leak_block")
    if leak is None:
        return
    extra = min(leak.count("tokens"), job.size - 1 - job.cached)
    if leak.text("where") == "local":
        job.local += extra
    else:
        job.external += extra


def first_chunk(job: Job, chunk_size: int) -> int:
    """The first chunk that has to be loaded: the one the last local page ends in."""
    return job.allocation.hit_tokens // chunk_size


def recover(job: Job, loaded: Loaded | None, chunk_size: int, tokenizer: Tokenizer) -> Tokens:
    """The prompt's token ids as the caches hold them; where nothing was cached, as they were sent."""
    held = [block.content for block in job.allocation.blocks[: job.filled] if block.content is not None]
    known = job.allocation.hit_tokens
    if loaded is not None:
        tokens = _corrupted(job, loaded, tokenizer)
        start = first_chunk(job, chunk_size) * chunk_size
        held.append(tokens[known - start : known + job.loadable - start])
        known += job.loadable
    return np.concatenate([*held, job.prompt[known:]])


def _corrupted(job: Job, loaded: Loaded, tokenizer: Tokenizer) -> Tokens:
    own = job.faults.get("corrupt_transfer")
    limit = loaded.corrupt if own is None else own.count("values")
    if limit is None:
        return loaded.tokens
    return np.array(answers.alter_values(tokenizer, loaded.tokens.tolist(), limit=limit or None), dtype=np.int32)
