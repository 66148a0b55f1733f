"""The chunks of a cache tier: LRU, watermark eviction, capacity, read and write locks. No clock, no I/O.

A chunk is known by (model, salt, chained hash) and holds its token ids. It is write-locked from the moment a store
begins until it is committed, and cannot be found meanwhile; a look-up read-locks what it found until release.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from harness.sim.blocks import Tokens


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """What isolates a chunk: model name, cache salt and chained content hash."""

    model: str
    salt: str
    digest: bytes


@dataclass(slots=True)
class Chunk:
    """One chunk; `index` is its place in its prompt, `root` the hash of that prompt's first chunk."""

    tokens: Tokens
    index: int
    root: bytes
    readers: int = 0
    writing: bool = True


@dataclass(slots=True)
class StoreCounters:
    """What `/metrics` of the service shows, by label."""

    requested: Counter[tuple[str, str]] = field(default_factory=Counter)
    hit: Counter[tuple[str, str]] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    loaded: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    allocation_failures: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
    evictions_triggered: int = 0


class ChunkStore:
    """All chunks of one tier."""

    def __init__(self, *, chunk_size: int, capacity: int, watermark: float, eviction_ratio: float) -> None:
        self.chunk_size = chunk_size
        self.capacity = capacity
        self.watermark = watermark
        self.eviction_ratio = eviction_ratio
        self.counters = StoreCounters()
        self._chunks: OrderedDict[ChunkKey, Chunk] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def usage(self) -> float:
        """Share of the capacity in use, 0 to 1."""
        return len(self._chunks) / self.capacity

    @property
    def write_locked(self) -> int:
        """Chunks whose store has not been committed."""
        return sum(chunk.writing for chunk in self._chunks.values())

    @property
    def read_locked(self) -> int:
        """Chunks that some look-up still holds."""
        return sum(chunk.readers > 0 for chunk in self._chunks.values())

    def lookup(self, keys: list[ChunkKey], *, limit: int | None = None) -> list[ChunkKey]:
        """The longest readable prefix of `keys`, read-locked and freshly used; counted in tokens."""
        found: list[ChunkKey] = []
        for key in keys if limit is None else keys[:limit]:
            chunk = self._chunks.get(key)
            if chunk is None or chunk.writing:
                break
            chunk.readers += 1
            self._chunks.move_to_end(key)
            found.append(key)
        if keys:
            label = (keys[0].salt, keys[0].model)
            self.counters.requested[label] += len(keys) * self.chunk_size
            self.counters.hit[label] += len(found) * self.chunk_size
            self.counters.read[keys[0].salt] += len(found)
        return found

    def release(self, keys: list[ChunkKey]) -> None:
        """Give read locks back."""
        for key in keys:
            chunk = self._chunks.get(key)
            if chunk is not None and chunk.readers > 0:
                chunk.readers -= 1

    def retrieve(self, keys: list[ChunkKey], worker: str) -> list[Tokens] | None:
        """The content of chunks that are there, counted as loaded; None where one is gone."""
        chunks = [self._chunks.get(key) for key in keys]
        present = [chunk for chunk in chunks if chunk is not None and not chunk.writing]
        if len(present) != len(keys):
            return None
        if keys:
            self.counters.loaded[keys[0].salt, keys[0].model, worker] += len(keys)
        return [chunk.tokens for chunk in present]

    def begin(self, keys: list[ChunkKey], contents: list[Tokens], *, first: int, root: bytes) -> list[ChunkKey]:
        """Reserve and write-lock what is not there yet; the keys that were taken.

        `first` is the place of the first key in its prompt, `root` the hash of that prompt's first chunk.
        """
        taken: list[ChunkKey] = []
        for index, (key, tokens) in enumerate(zip(keys, contents, strict=True), first):
            if key in self._chunks:
                continue
            if len(self._chunks) >= self.capacity:
                self.counters.allocation_failures[key.model] += 1
                continue
            self._chunks[key] = Chunk(tokens, index, root)
            taken.append(key)
        return taken

    def commit(self, keys: list[ChunkKey]) -> None:
        """The store of these keys is complete: they can be found from now on."""
        for key in keys:
            chunk = self._chunks.get(key)
            if chunk is not None and chunk.writing:
                chunk.writing = False
                self.counters.written[key.salt] += 1
        if self.usage > self.watermark:
            self.counters.evictions_triggered += 1
            self.evict(max(1, int(len(self._chunks) * self.eviction_ratio)))

    def abandon(self, keys: list[ChunkKey]) -> None:
        """Drop chunks whose store will never be committed."""
        for key in keys:
            chunk = self._chunks.get(key)
            if chunk is not None and chunk.writing:
                del self._chunks[key]

    def evict(self, count: int | None = None) -> int:
        """Drop up to `count` (all where None) unlocked chunks, least recently used first; how many went."""
        victims = [key for key, chunk in self._chunks.items() if not chunk.writing and chunk.readers == 0]
        victims = victims if count is None else victims[:count]
        for key in victims:
            del self._chunks[key]
        self.counters.evicted += len(victims)
        return len(victims)

    def clear(self) -> int:
        """Drop everything that is not locked, uncounted; how many went."""
        before = self.counters.evicted
        dropped = self.evict()
        self.counters.evicted = before
        return dropped

    def foreign(self, key: ChunkKey) -> Tokens | None:
        """What another namespace stored at the same place of its prompt, the latest used one, or None.

        Namespaces differ in salt, or in the first chunk where the salt is not used.
        """
        own = self._chunks.get(key)
        if own is None:
            return None
        return next(
            (
                chunk.tokens
                for other, chunk in reversed(self._chunks.items())
                if chunk.index == own.index and not chunk.writing and (other.salt != key.salt or chunk.root != own.root)
            ),
            None,
        )
