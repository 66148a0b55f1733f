"""Scrapes of every replica and of the cache service: fetched together, stamped when read, parsed afterwards.

Strategy: series names are resolved once, at the start of a block, and stay what they are; a later scrape can miss a
series but never read another one in its place. A scrape that gives nothing is a Snapshot with an error, never zeros.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from harness.counters.target import Target
from harness.model.counting import Counter, Snapshot, WindowCounters
from harness.model.errors import EngineError
from harness.wire import deltas, exposition, lmcache_status
from harness.wire.counter_names import TargetKind
from harness.wire.lmcache_status import PoolStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RawScrape:
    """One body as it came. `at_ns` is monotonic, taken right after the last byte; `error` where there is no body."""

    at_ns: int
    body: bytes
    error: str | None = None


class Scraper:
    """Reads counters of a fixed set of targets over kept connections; use as an async context manager."""

    def __init__(
        self, targets: Sequence[Target], *, timeout_s: float = 10.0, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.targets: Mapping[str, Target] = {target.name: target for target in targets}
        self._names: dict[str, Mapping[Counter, str]] = {}
        limits = httpx.Limits(max_keepalive_connections=2 * len(self.targets))
        # Identity encoding: a server must not spend time compressing what stays on this host.
        headers = {"accept": "text/plain", "accept-encoding": "identity"}
        self._client = httpx.AsyncClient(
            trust_env=False, timeout=timeout_s, limits=limits, headers=headers, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the kept connections."""
        await self._client.aclose()

    async def resolve(self, required_by_kind: Mapping[TargetKind, Iterable[Counter]]) -> None:
        """Choose one series name per counter and target, once (case MET-2).

        Args:
            required_by_kind: counters that must be exposed (`target.required(reach)`); others may be Missing.

        Raises:
            EngineError: phase `counters`, naming every target and series that is missing, or the body that is no
                exposition.
        """
        scrapes = await self._fetch_all("/metrics")
        problems: list[str] = []
        for name, scrape in scrapes.items():
            target = self.targets[name]
            try:
                names = exposition.resolve(_text(scrape), target.table, model=target.model)
            except exposition.ExpositionError as error:
                problems.append(f"{name}: {error}")
                continue
            self._names[name] = names
            wanted = required_by_kind.get(target.table, ())
            problems.extend(f"{name}: {words}" for words in exposition.missing(names, target.table, wanted))
        if problems:
            raise EngineError(
                "counters that this arm needs are not there:\n  " + "\n  ".join(problems),
                phase="counters",
                hint="Check the engine's version, its served model name, and that its statistics are not disabled.",
            )

    def names(self, target: str) -> Mapping[Counter, str]:
        """The series that `resolve` chose for a target; {} before."""
        return self._names.get(target, {})

    async def snapshot(self, target: str) -> Snapshot:
        """Read one target."""
        return self.read(target, await self._fetch(f"{self.targets[target].url}/metrics"))

    async def snapshot_all(self, only: Iterable[str] | None = None) -> dict[str, Snapshot]:
        """Read all targets (or `only` those) at the same time; parsing begins when the last body has been stamped."""
        scrapes = await self._fetch_all("/metrics", only)
        return {name: self.read(name, scrape) for name, scrape in scrapes.items()}

    async def pool_status(self, target: str) -> PoolStatus:
        """`/status` of a cache service; StatusError where it is none."""
        scrape = await self._fetch(f"{self.targets[target].url}/status")
        if scrape.error is not None:
            raise lmcache_status.StatusError(scrape.error)
        return lmcache_status.read_status(scrape.body)

    async def raw_all(self) -> dict[str, bytes]:
        """Bodies to archive: `NAME.metrics.txt` of every target, `NAME.status.json` of pools.

        A scrape that failed is a file that says so after a `#`.
        """
        metrics, status = await asyncio.gather(
            self._fetch_all("/metrics"),
            self._fetch_all("/status", [t.name for t in self.targets.values() if t.is_pool]),
        )
        bodies = {f"{name}.metrics.txt": scrape for name, scrape in metrics.items()}
        bodies |= {f"{name}.status.json": scrape for name, scrape in status.items()}
        return {
            name: scrape.body if scrape.error is None else f"# no answer: {scrape.error}\n".encode()
            for name, scrape in bodies.items()
        }

    def read(self, target: str, scrape: RawScrape) -> Snapshot:
        """Parse one body with the names resolved for its target."""
        spec = self.targets[target]
        if scrape.error is not None:
            return exposition.failed_snapshot(target=target, at_ns=scrape.at_ns, error=scrape.error)
        text = scrape.body.decode("utf-8", errors="replace")
        return exposition.read_snapshot(
            text, spec.table, target=target, at_ns=scrape.at_ns, model=spec.model, names=self._names.get(target)
        )

    async def fetch(self, target: str, path: str) -> RawScrape:
        """One GET of a target."""
        return await self._fetch(self.targets[target].url + path)

    async def _fetch_all(self, path: str, only: Iterable[str] | None = None) -> dict[str, RawScrape]:
        names = list(self.targets if only is None else only)
        scrapes = await asyncio.gather(*(self.fetch(name, path) for name in names))
        return dict(zip(names, scrapes, strict=True))

    async def _fetch(self, url: str) -> RawScrape:
        try:
            response = await self._get(url)
        except httpx.HTTPError as error:
            return RawScrape(at_ns=time.monotonic_ns(), body=b"", error=f"{type(error).__name__}: {error}".rstrip(": "))
        at_ns = time.monotonic_ns()
        if response.status_code != httpx.codes.OK:
            return RawScrape(at_ns=at_ns, body=response.content, error=f"HTTP {response.status_code}")
        return RawScrape(at_ns=at_ns, body=response.content)

    # A server may close a kept connection just when it is used again. Reading counters twice changes nothing.
    @retry(
        retry=retry_if_exception_type((httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)),
        stop=stop_after_attempt(2),
        reraise=True,
    )
    async def _get(self, url: str) -> httpx.Response:
        return await self._client.get(url)


def difference(before: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> WindowCounters:
    """What happened between two sets of snapshots, per target; only targets in both."""
    return WindowCounters(
        deltas={name: deltas.difference(snapshot, after[name]) for name, snapshot in before.items() if name in after}
    )


def _text(scrape: RawScrape) -> str:
    if scrape.error is not None:
        raise exposition.ExpositionError(scrape.error)
    return scrape.body.decode("utf-8", errors="replace")
