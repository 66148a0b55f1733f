"""The real `Stage` and `Live`: processes, client and counters of one started arm behind the runner's ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.client import Call, ClientSettings, ReplicaClient, open_client
from harness.counters import Scraper, Target, difference, drain, quiesce, required, settle
from harness.engines import DeviceMemory, RunningArm, launch
from harness.engines.events import OnEvent, ignore
from harness.host import ContentionProbe, memory_in_use
from harness.model.counting import Counter, WindowCounters
from harness.model.findings import Finding
from harness.run.ports import Capacity, Decode, Exchange, Outgoing, Snapshots
from harness.wire.counter_names import KIND_OF

if TYPE_CHECKING:
    from harness.model.observation import Observation
    from harness.model.screening import Arm, Screening

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_SCALE_HEADER = "x-kvabba-time-scale"
_EACH_LAUNCH = ("argv", "pid", "start_ticks", "created")
_SETTLED_BY = (Counter.LOCAL_QUERIES, Counter.PROMPT_TOKENS)
_RELEASED_BYTES = 512 * 2**20
"""Device memory above what was in use before the first start that counts as not released."""


class SystemLive:
    """`harness.run.ports.Live` of real processes."""

    def __init__(self, screening: Screening, running: RunningArm, client: ReplicaClient, scraper: Scraper) -> None:
        self._screening, self._running = screening, running
        self._client, self._scraper = client, scraper
        self._contention = ContentionProbe()
        self._contention.start(running.pids)

    @property
    def urls(self) -> Mapping[str, str]:
        """Replica name → base URL."""
        return self._running.replicas

    @property
    def pools(self) -> tuple[str, ...]:
        """Cache services that are scraped."""
        return tuple(name for name, target in self._scraper.targets.items() if target.is_pool)

    @property
    def fingerprints(self) -> Mapping[str, Mapping[str, Any]]:
        """Process name → fingerprint as plain values; what differs from launch to launch stands under `started`."""
        shown = {}
        for print_ in self._running.fingerprints():
            facts = print_.as_json()
            started = {name: facts.pop(name) for name in _EACH_LAUNCH}
            started["start_s"] = self._running.start_seconds.get(print_.name)
            shown[print_.name] = {**facts, "started": started}
        return shown

    @property
    def capacity(self) -> Mapping[str, Capacity]:
        """Replica name → cache size as the engine reports it."""
        return {
            print_.name: Capacity(block_size=print_.block_size, num_blocks=print_.num_gpu_blocks)
            for print_ in self._running.fingerprints()
            if print_.role == "replica"
        }

    async def send(self, outgoing: Outgoing) -> Observation:
        """Send and decode."""
        return await self._client.send(self._call(outgoing))

    def prepare(self, outgoing: Outgoing) -> Exchange:
        """Serialised and hashed now; sent when called, decoded later."""
        prepared = self._client.prepare(self._call(outgoing))

        async def exchange() -> Decode:
            raw = await self._client.exchange(prepared)
            return lambda: self._client.observe(raw)

        return exchange

    async def snapshot(self) -> Snapshots:
        """Scrape everything."""
        return await self._scraper.snapshot_all()

    async def quiesce(self) -> Sequence[Finding]:
        """Nothing runs, nothing waits, no counter moves."""
        return (await quiesce(self._scraper)).findings

    async def settle(self, before: Snapshots, sent: Mapping[str, int]) -> Sequence[Finding]:
        """Counters have reached what was there before plus what was sent."""
        expected = {
            replica: {
                counter: before[replica].samples[counter] + tokens
                for counter in _SETTLED_BY
                if counter in before[replica].samples
            }
            for replica, tokens in sent.items()
        }
        return (await settle(self._scraper, expected)).findings

    async def drain(self, before: Snapshots, chunks: int) -> Sequence[Finding]:
        """The pools have written at least `chunks` more and come to rest."""
        written = Counter.POOL_WRITTEN_CHUNKS
        expected = {
            pool: {written: before[pool].samples[written] + chunks}
            for pool in self.pools
            if chunks and pool in before and written in before[pool].samples
        }
        return (await drain(self._scraper, expected=expected)).findings

    def difference(self, before: Snapshots, after: Snapshots) -> WindowCounters:
        """Increments between two scrapes."""
        return difference(before, after)

    def health_findings(self) -> list[Finding]:
        """Processes and their logs."""
        return self._running.health_findings()

    def contention(self) -> Mapping[str, Any]:
        """Who else used the processors since the arm was ready."""
        seen = self._contention.stop(self._running.pids)
        return {**asdict(seen), "others_share": seen.others_share, "steal_share": seen.steal_share}

    async def raw_state(self) -> Mapping[str, bytes]:
        """Raw bodies of every target."""
        return await self._scraper.raw_all()

    def _call(self, outgoing: Outgoing) -> Call:
        simulated = self._screening.engine.kind == "sim"
        return Call(
            replica=outgoing.replica,
            url=self.urls[outgoing.replica],
            path=_PATHS[self._screening.request.api],
            body=outgoing.body,
            headers={_SCALE_HEADER: repr(outgoing.time_scale)} if simulated else {},
            request_id=outgoing.request_id,
            timeout_s=outgoing.timeout_s,
        )


class SystemStage:
    """`harness.run.ports.Stage` of real processes."""

    def __init__(self, screening: Screening, *, root: Path, on_event: OnEvent = ignore) -> None:
        self._screening, self._root, self._on_event = screening, root, on_event
        self._device_memory = device_memory()
        self._took: dict[str, float] = {}

    @asynccontextmanager
    async def start(self, arm: Arm, logs: Path) -> AsyncIterator[SystemLive]:
        """See `Stage`. Teardown is whole also when the caller is cancelled: `RunningArm.stop` shields itself."""
        running = await launch(
            self._screening,
            arm,
            log_dir=logs,
            project_root=self._root,
            on_event=self._on_event,
            expected=self._took,
            device_memory=self._device_memory,
        )
        try:
            self._took.update(running.start_seconds)
            async with (
                open_client(client_settings(self._screening)) as client,
                Scraper(targets(self._screening, running)) as scraper,
            ):
                await scraper.resolve(required(arm.reach))
                yield SystemLive(self._screening, running, client, scraper)
        finally:
            await running.stop()


def client_settings(screening: Screening) -> ClientSettings:
    """How requests are sent; equal in all arms."""
    request = screening.request
    return ClientSettings(connection=request.connection, timeout_s=request.timeout_s)


def targets(screening: Screening, running: RunningArm) -> list[Target]:
    """What is scraped: every replica, and services of a kind whose metrics are known."""
    kinds: dict[str, str] = dict.fromkeys(running.replicas, screening.engine.kind)
    kinds |= {name: screening.service(name).kind for name in running.services}
    return [
        Target(
            name=point.name,
            url=point.url,
            kind=kinds[point.name],
            model=screening.engine.model if point.role == "replica" else None,
        )
        for point in running.endpoints
        if kinds[point.name] in KIND_OF
    ]


def device_memory() -> DeviceMemory | None:
    """What must be released after a stop: anything beyond what was in use before the first start. None without GPUs."""
    in_use = memory_in_use()
    if not in_use:
        return None
    return DeviceMemory(probe=memory_in_use, threshold_bytes=max(in_use.values()) + _RELEASED_BYTES)
