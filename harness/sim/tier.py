"""The replica's side of a second cache tier: the shared service over HTTP, or a native tier of its own process.

Both answer with leases on whole chunks. The engine asks, loads what lies beyond its own hits, and stores what it
computed: a store begins when the prompt is computed and is committed after the response has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import orjson

from harness.sim.blocks import Tokens, chain_hashes, root_hash
from harness.sim.chunk_store import ChunkKey, ChunkStore
from harness.sim.faults import NAMESPACE_CHARACTERS, ActiveFaults, Facts
from harness.sim.http_client import CacheUnreachableError, HttpClient

TRANSFER_FAULTS = ("foreign_transfer", "gibberish_transfer")


class LoadFailedError(RuntimeError):
    """Chunks that a lease promised did not arrive."""


@dataclass(slots=True)
class Lease:
    """What a look-up found: `chunks` readable chunks from the start of the prompt."""

    handle: int = 0
    chunks: int = 0
    keys: list[ChunkKey] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    """Names of all whole chunks of the prompt, as a shared service knows them."""


@dataclass(slots=True)
class Loaded:
    """Transferred token ids; `corrupt` says how many planted values to alter (0 = all), None for none."""

    tokens: Tokens
    corrupt: int | None = None


@dataclass(frozen=True, slots=True)
class StorePiece:
    """Chunks to store, from chunk `first` on: `ids` as sent decide their names, `content` is what they hold."""

    ids: Tokens
    content: Tokens
    first: int
    digests: list[str] = field(default_factory=list)
    """Their names from the first chunk on, where a look-up has worked them out."""


class Tier(Protocol):
    """A cache tier behind the replica's own pages."""

    chunk_size: int
    store_generated: bool
    stores_early: bool
    """Stores complete after the prefill, not after the response."""

    async def lookup(self, prompt: Tokens, facts: Facts, faults: ActiveFaults) -> Lease:
        """The longest readable prefix of whole chunks."""

    async def load(self, lease: Lease, first: int, faults: ActiveFaults) -> Loaded:
        """Content of the leased chunks from `first` on; raises LoadFailedError."""

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""

    async def begin_store(self, piece: StorePiece, facts: Facts, faults: ActiveFaults) -> int | None:
        """Reserve chunks and send their content; a handle, or None where nothing is to be stored."""

    async def finish_store(self, handle: int, scale: float, *, abandon: bool = False) -> None:
        """The response has ended: let the store complete."""

    async def reset(self) -> bool:
        """What `reset_external=true` achieves."""

    def close(self) -> None:
        """Let go of connections."""


def shared_salt(facts: Facts, faults: ActiveFaults) -> str:
    """The salt as the shared tier gets to see it."""
    ignore = faults.get("ignore_salt")
    return "" if ignore is not None and ignore.text("where") in ("shared", "both") else facts.salt


class RemoteTier:
    """The shared cache service. While it is lost, requests go on without it; a heartbeat looks for it."""

    def __init__(self, url: str, *, model: str, worker: int, timeout_s: float, heartbeat_s: float) -> None:
        self._client = HttpClient(url)
        self._model = model
        self._worker = str(worker)
        self._timeout_s = timeout_s
        self._heartbeat_s = heartbeat_s
        self._lost = False
        self._heartbeat: asyncio.Task[None] | None = None
        self.chunk_size = 0
        self.store_generated = False
        self.stores_early = False

    async def register(self) -> None:
        """Introduce this replica and learn the chunk size; raises CacheUnreachableError."""
        body = orjson.dumps({"worker": self._worker, "model": self._model})
        reply = await self._client.post("/sim/register", body)
        if reply.status != 200:
            raise CacheUnreachableError(f"cache service answered {reply.status}")
        facts = orjson.loads(reply.body)
        self.chunk_size, self.store_generated = int(facts["chunk_size"]), bool(facts["store_generated"])
        self.stores_early = facts["store_after"] == "prefill"

    def _digests(self, tokens: Tokens) -> list[str]:
        return [digest.hex() for digest in chain_hashes(tokens, self.chunk_size, root_hash(b""))]

    async def lookup(self, prompt: Tokens, facts: Facts, faults: ActiveFaults) -> Lease:
        """Ask the service; a service that does not answer costs its timeout and then counts as lost."""
        digests = self._digests(prompt)
        if not digests or self._lost:
            return Lease()
        head = {
            "model": self._model,
            "salt": shared_salt(facts, faults),
            "request_id": facts.request_id,
            "text": facts.text[:NAMESPACE_CHARACTERS],
            "keys": digests,
        }
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._patient_post("/sim/lookup", orjson.dumps(head))
        except TimeoutError:
            self._lose()
            return Lease()
        found = orjson.loads(reply)
        lease = Lease(int(found["lease"]), int(found["hit"]), digests=digests)
        if (short := faults.get("shortfall")) is not None:
            lease.chunks = max(0, lease.chunks - (short.count("chunks") or lease.chunks))
        return lease

    async def _patient_post(self, path: str, body: bytes) -> bytes:
        """The reply; a refused connection waits like a queue whose reader is gone."""
        try:
            return (await self._client.post(path, body)).body
        except CacheUnreachableError:
            await asyncio.Event().wait()
            raise

    def _lose(self) -> None:
        self._lost = True
        self._heartbeat = asyncio.get_running_loop().create_task(self._search())

    async def _search(self) -> None:
        while self._lost:
            await asyncio.sleep(self._heartbeat_s)
            with contextlib.suppress(CacheUnreachableError, TimeoutError):
                async with asyncio.timeout(self._heartbeat_s):
                    self._lost = (await self._client.get("/healthcheck")).status != 200

    async def load(self, lease: Lease, first: int, faults: ActiveFaults) -> Loaded:
        """Fetch chunk contents; whatever goes wrong is a failed load."""
        asked = [kind for kind in TRANSFER_FAULTS if kind in faults]
        head = {"lease": lease.handle, "first": first, "worker": self._worker, "faults": asked}
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._client.post("/sim/retrieve", orjson.dumps(head))
        except (CacheUnreachableError, TimeoutError) as error:
            raise LoadFailedError(str(error)) from error
        tokens = np.frombuffer(reply.body, dtype="<i4").astype(np.int32)
        if reply.status != 200 or len(tokens) < (lease.chunks - first) * self.chunk_size:
            raise LoadFailedError(f"cache service answered {reply.status}")
        corrupt = reply.headers.get("x-sim-corrupt")
        return Loaded(tokens[: (lease.chunks - first) * self.chunk_size], None if corrupt is None else int(corrupt))

    async def release(self, lease: Lease) -> None:
        """Give read locks back; a lost service needs none."""
        if lease.handle and not self._lost:
            await self._quiet_post("/sim/release", orjson.dumps({"lease": lease.handle}))

    async def begin_store(self, piece: StorePiece, facts: Facts, faults: ActiveFaults) -> int | None:
        """Send the chunks that the service did not have."""
        digests, first = piece.digests or self._digests(piece.ids), piece.first
        if "no_store" in faults or self._lost or first >= len(digests):
            return None
        head = {
            "model": self._model,
            "salt": shared_salt(facts, faults),
            "request_id": facts.request_id,
            "text": facts.text[:NAMESPACE_CHARACTERS],
            "keys": digests[first:],
            "first": first,
            "root": digests[0],
        }
        content = piece.content[first * self.chunk_size : len(digests) * self.chunk_size]
        payload = np.ascontiguousarray(content, dtype="<i4").tobytes()
        reply = await self._quiet_post("/sim/store", orjson.dumps(head) + b"\n" + payload)
        return int(orjson.loads(reply)["store"]) if reply else None

    async def finish_store(self, handle: int, scale: float, *, abandon: bool = False) -> None:
        """Commit, or abandon, what `begin_store` reserved."""
        await self._quiet_post("/sim/commit", orjson.dumps({"store": handle, "scale": scale, "abandon": abandon}))

    async def _quiet_post(self, path: str, body: bytes) -> bytes | None:
        """The reply, or None from a service that is gone: stores and releases never fail a request."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return (await self._client.post(path, body)).body
        except (CacheUnreachableError, TimeoutError):
            return None

    async def reset(self) -> bool:
        """Reports success without clearing anything, as the real connector does."""
        return True

    def close(self) -> None:
        """Stop looking for the service and hang up."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._client.close()


class NativeTier:
    """A tier in this process's own memory: not shared, one chunk per page, complete at once."""

    store_generated = True
    stores_early = False

    def __init__(self, *, model: str, block_size: int, capacity_tokens: int) -> None:
        self.chunk_size = block_size
        self._model = model
        self._store = ChunkStore(
            chunk_size=block_size, capacity=max(1, capacity_tokens // block_size), watermark=1.0, eviction_ratio=0.2
        )
        self._ids = itertools.count(1)
        self._pending: dict[int, list[ChunkKey]] = {}

    def _keys(self, tokens: Tokens, salt: str) -> list[ChunkKey]:
        return [ChunkKey(self._model, salt, d) for d in chain_hashes(tokens, self.chunk_size, root_hash(b""))]

    async def lookup(self, prompt: Tokens, facts: Facts, faults: ActiveFaults) -> Lease:
        """The longest prefix held here."""
        found = self._store.lookup(self._keys(prompt, shared_salt(facts, faults)))
        if (short := faults.get("shortfall")) is not None and found:
            missing = short.count("chunks") or len(found)
            self._store.release(found[-missing:])
            found = found[:-missing]
        return Lease(1, len(found), found)

    async def load(self, lease: Lease, first: int, faults: ActiveFaults) -> Loaded:  # noqa: ARG002 - the port's shape
        """Content from memory."""
        contents = self._store.retrieve(lease.keys[first:], "native")
        if contents is None:
            raise LoadFailedError("block is gone")
        return Loaded(np.concatenate(contents) if contents else np.empty(0, dtype=np.int32))

    async def release(self, lease: Lease) -> None:
        """Give read locks back."""
        self._store.release(lease.keys)

    async def begin_store(self, piece: StorePiece, facts: Facts, faults: ActiveFaults) -> int | None:
        """Copy pages out; least recently used ones make room."""
        keys, first, size = self._keys(piece.ids, shared_salt(facts, faults)), piece.first, self.chunk_size
        if "no_store" in faults or first >= len(keys):
            return None
        contents = [piece.content[i * size : (i + 1) * size].copy() for i in range(first, len(keys))]
        self._store.evict(max(0, len(self._store) + len(contents) - self._store.capacity))
        handle = next(self._ids)
        self._pending[handle] = self._store.begin(keys[first:], contents, first=first, root=keys[0].digest)
        return handle

    async def finish_store(self, handle: int, scale: float, *, abandon: bool = False) -> None:  # noqa: ARG002 - the same
        """Complete at once."""
        keys = self._pending.pop(handle, [])
        self._store.abandon(keys) if abandon else self._store.commit(keys)

    async def reset(self) -> bool:
        """Forget everything."""
        self._store.clear()
        return True

    def close(self) -> None:
        """Nothing to let go of."""
