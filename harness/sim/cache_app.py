"""The shared cache service over HTTP: LMCache's public endpoints, and a binary protocol for replicas.

Replicas use `/sim/…`: look-up takes read locks under a lease, retrieve returns token ids, store begins with the content
and is committed after the response, `store_delay_s` later. Chunks are write-locked meanwhile, as in the real service.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from harness.sim.blocks import Tokens
from harness.sim.cache_metrics import CacheExposition, status
from harness.sim.chunk_store import ChunkKey, ChunkStore
from harness.sim.fault_kinds import FAULTS
from harness.sim.faults import ActiveFaults, Facts, FaultBook, FaultSpec
from harness.sim.http_server import Request, Response
from harness.sim.settings import CacheSettings

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a look-up read-locked, and for whom."""

    keys: list[ChunkKey]
    facts: Facts


class CacheService:
    """State and routes of one cache service."""

    def __init__(self, settings: CacheSettings) -> None:
        self.settings = settings
        self.store = ChunkStore(
            chunk_size=settings.chunk_size,
            capacity=settings.capacity_chunks,
            watermark=settings.watermark,
            eviction_ratio=settings.eviction_ratio,
        )
        self.book = FaultBook(settings.faults)
        bytes_per_chunk = settings.chunk_size * settings.transfer.bytes_per_token
        self.bytes_per_chunk = bytes_per_chunk
        self.exposition = CacheExposition(self.store, bytes_per_chunk)
        self.unhealthy = False
        self._hung = False
        self._ids = itertools.count(1)
        self._leases: dict[int, Grant] = {}
        self._stores: dict[int, list[ChunkKey]] = {}
        self._workers: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes = {
            ("GET", "/healthcheck"): self._health,
            ("GET", "/health"): self._health,
            ("GET", "/status"): self._status,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/cache/clear"): self._clear,
            ("POST", "/sim/register"): self._register,
            ("POST", "/sim/lookup"): self._lookup,
            ("POST", "/sim/retrieve"): self._retrieve,
            ("POST", "/sim/release"): self._release,
            ("POST", "/sim/store"): self._store,
            ("POST", "/sim/commit"): self._commit,
        }

    async def handle(self, request: Request, response: Response) -> None:
        """Route one request."""
        if self._hung:
            await request.closed.wait()
            return
        route = self._routes.get((request.method, request.path))
        if route is None:
            response.send(404, b'{"detail":"Not Found"}', JSON)
            return
        await route(request, response)

    async def _health(self, _: Request, response: Response) -> None:
        if self.unhealthy:
            response.send(503, b'{"status":"unhealthy"}', JSON)
        else:
            response.send(200, b'{"status":"healthy"}', JSON)

    async def _status(self, _: Request, response: Response) -> None:
        body = status(
            self.store,
            bytes_per_chunk=self.bytes_per_chunk,
            workers=self._workers,
            pending_stores=len(self._stores) + len(self._tasks),
        )
        response.send(200, orjson.dumps(body), JSON)

    async def _metrics(self, _: Request, response: Response) -> None:
        response.send(200, self.exposition.text(), "text/plain; version=0.0.4; charset=utf-8")

    async def _clear(self, _: Request, response: Response) -> None:
        self.store.clear()
        response.send(200, b'{"status":"ok","cleared":{"tier":"l1"}}', JSON)

    async def _register(self, request: Request, response: Response) -> None:
        head = orjson.loads(request.body)
        self._workers[str(head["worker"])] = str(head["model"])
        settings = self.settings
        body = {
            "chunk_size": settings.chunk_size,
            "store_generated": settings.store_generated,
            "store_after": settings.store_after,
        }
        response.send(200, orjson.dumps(body), JSON)

    def _select(self, facts: Facts, scope: str) -> ActiveFaults:
        """Faults for one operation: each kind counts the operations of its own scope."""

        def accept(spec: FaultSpec) -> bool:
            own = spec.text("at") if spec.kind == "dead_cache" else FAULTS[spec.kind].scope
            return own == scope

        return self.book.select(facts, accept)

    def _keys(self, head: dict[str, Any]) -> list[ChunkKey]:
        ignore = self.book.process("ignore_salt")
        salt = "" if ignore is not None else str(head["salt"])
        return [ChunkKey(str(head["model"]), salt, bytes.fromhex(digest)) for digest in head["keys"]]

    async def _die(self, faults: ActiveFaults, request: Request) -> bool:
        """Exit at once, or stop answering for good, if this operation was chosen for it."""
        dead = faults.get("dead_cache")
        if dead is None:
            return False
        if dead.text("mode") == "exit":
            os._exit(1)
        self._hung = True
        await request.closed.wait()
        return True

    async def _lookup(self, request: Request, response: Response) -> None:
        head = orjson.loads(request.body)
        facts = _facts(head)
        faults = self._select(facts, "lookup")
        if await self._die(faults, request):
            return
        if evict := faults.get("evict"):
            self.store.evict(evict.count("count") or None)
        keys = self._keys(head)
        found = self.store.lookup(keys)
        if (short := faults.get("shortfall")) and found:
            missing = short.count("chunks") or len(found)
            self.store.release(found[-missing:])
            found = found[:-missing]
        lease = next(self._ids)
        self._leases[lease] = Grant(found, facts)
        response.send(200, orjson.dumps({"hit": len(found), "lease": lease}), JSON)

    async def _retrieve(self, request: Request, response: Response) -> None:
        head = orjson.loads(request.body)
        grant = self._leases.get(int(head["lease"]), NOTHING)
        faults = self._select(grant.facts, "retrieve")
        if await self._die(faults, request):
            return
        keys = grant.keys[int(head["first"]) :]
        contents = self.store.retrieve(keys, str(head["worker"]))
        if contents is None:
            response.send(410, b'{"error":"chunk is gone"}', JSON)
            return
        asked = [kind for kind in head.get("faults", []) if kind not in faults]
        contents = [
            self._altered(key, tokens, {*faults.kinds(), *asked}) for key, tokens in zip(keys, contents, strict=True)
        ]
        if self.settings.transfer.extra_s:
            await asyncio.sleep(self.settings.transfer.extra_s)
        body = b"".join(np.ascontiguousarray(tokens, dtype="<i4").tobytes() for tokens in contents)
        corrupt = faults.get("corrupt_transfer")
        headers = {"x-sim-corrupt": str(corrupt.count("values"))} if corrupt else {}
        response.send(200, body, "application/octet-stream", headers)

    def _altered(self, key: ChunkKey, tokens: Tokens, kinds: set[str]) -> Tokens:
        """Chunk content under the transfer faults that need no tokenizer; the replica does `corrupt_transfer`."""
        if "foreign_transfer" in kinds:
            foreign = self.store.foreign(key)
            tokens = tokens if foreign is None else foreign
        if "gibberish_transfer" in kinds:
            source = random.Random(key.digest)
            tokens = np.array(source.sample(tokens.tolist(), len(tokens)), dtype=np.int32)
        return tokens

    async def _release(self, request: Request, response: Response) -> None:
        grant = self._leases.pop(int(orjson.loads(request.body)["lease"]), NOTHING)
        self.store.release(grant.keys)
        response.send(200, b"{}", JSON)

    async def _store(self, request: Request, response: Response) -> None:
        line, _, payload = request.body.partition(b"\n")
        head = orjson.loads(line)
        store = next(self._ids)
        if "no_store" not in self._select(_facts(head), "store"):
            size = self.settings.chunk_size
            flat = np.frombuffer(payload, dtype="<i4").astype(np.int32)
            keys = self._keys(head)
            contents = [flat[i * size : (i + 1) * size] for i in range(len(keys))]
            root = bytes.fromhex(head["root"])
            self._stores[store] = self.store.begin(keys, contents, first=int(head["first"]), root=root)
        response.send(200, orjson.dumps({"store": store}), JSON)

    async def _commit(self, request: Request, response: Response) -> None:
        head = orjson.loads(request.body)
        keys = self._stores.pop(int(head["store"]), [])
        delay = self.settings.store_delay_s * float(head["scale"])
        task = asyncio.get_running_loop().create_task(self._commit_later(keys, delay, abandon=bool(head["abandon"])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        response.send(200, b"{}", JSON)

    async def _commit_later(self, keys: list[ChunkKey], delay: float, *, abandon: bool) -> None:
        if abandon:
            self.store.abandon(keys)
            return
        await asyncio.sleep(delay)
        self.store.commit(keys)


NOTHING = Grant([], Facts())


def _facts(head: dict[str, Any]) -> Facts:
    return Facts(salt=head.get("salt", ""), text=head.get("text", ""), request_id=head.get("request_id", ""))
