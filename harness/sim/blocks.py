"""A paged prefix cache with vLLM's rules: chained block hashes, reference counts, LRU, fixed capacity.

A block belongs to a hash once it is full and computed. A hit may cover at most ⌊(n − 1) / size⌋ blocks, so
that at least one token is computed. Freed blocks keep their content until they are needed again; the tail of
a sequence goes first. Each block stores the token ids it holds: an answer is read from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xxhash

Tokens = npt.NDArray[np.int32]


def root_hash(seed: bytes) -> bytes:
    """The parent of a first block: it carries the cache salt."""
    return xxhash.xxh3_128_digest(b"root:" + seed)


def chain_hashes(tokens: Tokens, size: int, parent: bytes) -> list[bytes]:
    """Hash of every full piece of `size` tokens; each includes the hash before it, the first `parent`."""
    data = np.ascontiguousarray(tokens, dtype="<i4").tobytes()
    hashes: list[bytes] = []
    for start in range(0, len(tokens) // size * size * 4, size * 4):
        parent = xxhash.xxh3_128_digest(parent + data[start : start + size * 4])
        hashes.append(parent)
    return hashes


@dataclass(slots=True)
class Block:
    """One page of the cache."""

    index: int
    refs: int = 0
    hash: bytes | None = None
    content: Tokens | None = None


@dataclass(slots=True)
class Allocation:
    """The pages of one running request; `hit_tokens` of its prompt came from this cache."""

    blocks: list[Block] = field(default_factory=list)
    hit_tokens: int = 0


class BlockPool:
    """All pages of one replica."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        self._blocks = [Block(i) for i in range(count)]
        # An insertion-ordered dict is a queue with removal in the middle: oldest freed page first.
        self._free: dict[int, Block] = {block.index: block for block in self._blocks}
        self._by_hash: dict[bytes, dict[int, Block]] = {}

    @property
    def free_count(self) -> int:
        """Pages that no running request holds."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of pages held by running requests, 0 to 1."""
        return 1.0 - len(self._free) / self.count

    @property
    def cached_count(self) -> int:
        """Distinct hashes that can be hit."""
        return len(self._by_hash)

    def match(self, hashes: list[bytes], prompt_tokens: int) -> list[Block]:
        """The longest cached prefix, at most ⌊(n − 1) / size⌋ pages; takes nothing."""
        found: list[Block] = []
        for digest in hashes[: max(0, prompt_tokens - 1) // self.size]:
            same = self._by_hash.get(digest)
            if not same:
                break
            found.append(next(iter(same.values())))
        return found

    def allocate(self, hits: list[Block], total_tokens: int) -> Allocation | None:
        """Hold `hits` and enough fresh pages for `total_tokens`; None where too few are free."""
        fresh = -(-total_tokens // self.size) - len(hits)
        idle_hits = sum(1 for block in hits if block.refs == 0)
        if fresh > len(self._free) - idle_hits:
            return None
        for block in hits:
            block.refs += 1
            self._free.pop(block.index, None)
        taken = Allocation([*hits], len(hits) * self.size)
        taken.blocks.extend(self._take() for _ in range(max(0, fresh)))
        return taken

    def _take(self) -> Block:
        """The page that has been free longest; whatever it cached is forgotten."""
        index = next(iter(self._free))
        block = self._free.pop(index)
        self._forget(block)
        block.refs = 1
        return block

    def _forget(self, block: Block) -> None:
        if block.hash is not None:
            same = self._by_hash[block.hash]
            del same[block.index]
            if not same:
                del self._by_hash[block.hash]
        block.hash = block.content = None

    def fill(self, allocation: Allocation, position: int, digest: bytes, content: Tokens) -> None:
        """Page `position` of a request is now full and computed: others may hit it."""
        block = allocation.blocks[position]
        if block.hash is None:
            block.hash, block.content = digest, content
            self._by_hash.setdefault(digest, {})[block.index] = block

    def release(self, allocation: Allocation) -> None:
        """Let go of a request's pages, tail first, so that its tail is evicted before its head."""
        for block in reversed(allocation.blocks):
            block.refs -= 1
            if block.refs == 0:
                self._free[block.index] = block
        allocation.blocks = []

    def evict_free(self, count: int | None = None) -> int:
        """Forget the content of up to `count` free pages (all where None); how many held something."""
        evicted = 0
        for block in self._free.values():
            if count is not None and evicted >= count:
                break
            if block.hash is not None:
                self._forget(block)
                evicted += 1
        return evicted

    def reset(self) -> bool:
        """Forget everything; refused (False) while any page is held."""
        if len(self._free) != self.count:
            return False
        self.evict_free()
        return True
