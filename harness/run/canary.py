"""The isolation canary: before anything is measured, the same text under another salt must be cold everywhere (ISO-1).

Three requests a block, equal in all arms, whose namespaces are none of the plan's: text P under salt 1 to the first
replica, under salt 2 to the same replica (its own cache and the tier behind it must be cold), under salt 3 to the next
replica (the shared tier must be cold). Where the declaration sends no salt, the namespace stands in the text instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from harness.model.counting import Counter
from harness.model.errors import EngineError, FixtureError
from harness.model.findings import Finding
from harness.model.observation import Failed
from harness.rules.facts import finding
from harness.run.ports import Live, Outgoing, Snapshots

if TYPE_CHECKING:
    from harness.model.payload import Payload
    from harness.model.planned import PlannedBlock
    from harness.model.screening import Screening

_WORDS = ("stone", "river", "paper", "light", "glass", "north", "field", "seven", "cloud", "metal", "green", "voice")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryProbe:
    """One canary request and what it hit; hits are None where nothing could be read."""

    replica: str
    namespace: str
    prompt_tokens: int | None
    local_hits: int | None
    external_hits: int | None
    cached_tokens: int | None

    @property
    def hits(self) -> int:
        """The most tokens that anybody says were cached."""
        return max((self.local_hits or 0) + (self.external_hits or 0), self.cached_tokens or 0)


async def probe(
    screening: Screening, block: PlannedBlock, live: Live, before: Snapshots
) -> tuple[list[CanaryProbe], Snapshots]:
    """Send the three canaries; returns what they hit and the last snapshot. EngineError where one fails."""
    names = [replica.name for replica in screening.engine.replicas]
    probes = []
    for number, replica in enumerate((names[0], names[0], names[min(1, len(names) - 1)])):
        namespace = _namespace(screening, block.pair, number)
        body = canary_body(screening, namespace)
        seen = await live.send(
            Outgoing(
                key=f"canary/{number + 1}",
                replica=replica,
                body=body,
                sha256=hashlib.sha256(body).hexdigest(),
                request_id=f"canary-{block.position}-{number + 1}",
                time_scale=screening.workloads.warmup.time_scale,
                timeout_s=screening.request.timeout_s,
            )
        )
        if isinstance(seen.outcome, Failed):
            words = f"canary request to {replica} failed: {seen.outcome.kind}: {seen.outcome.detail}"
            raise EngineError(words, phase="canary", hint="The engine is up but does not answer; see its log.")
        await live.settle(before, {replica: seen.usage.prompt_tokens} if seen.usage else {})
        await live.quiesce()
        await live.drain(before, 0)
        after = await live.snapshot()
        counters, before = live.difference(before, after), after
        probes.append(
            CanaryProbe(
                replica=replica,
                namespace=namespace,
                prompt_tokens=seen.usage.prompt_tokens if seen.usage else None,
                local_hits=counters.value(replica, Counter.LOCAL_HITS),
                external_hits=counters.value(replica, Counter.EXTERNAL_HITS),
                cached_tokens=seen.usage.cached_tokens if seen.usage else None,
            )
        )
    return probes, before


def canary_findings(probes: Iterable[CanaryProbe], block: int) -> list[Finding]:
    """`isolation.salt_ignored` for every canary that was warm."""
    return [
        finding(
            "isolation.salt_ignored",
            f"block {block}",
            f"canary {number} on {seen.replica}: the same text under a new namespace hit"
            f" {seen.local_hits or 0:,} local and {seen.external_hits or 0:,} external tokens of {seen.prompt_tokens:,}"
            f" (the response reports {seen.cached_tokens or 0:,})",
            block=block,
            local=seen.local_hits,
            external=seen.external_hits,
        )
        for number, seen in enumerate(probes, start=1)
        if seen.hits
    ]


def check_salts(payloads: Iterable[Payload], *, salted: bool) -> None:
    """FixtureError where a salt does not isolate: missing, "" (no namespace at all), or shared by two namespaces."""
    owner: dict[str, str] = {}
    for payload in payloads if salted else ():
        if not payload.salt:
            raise FixtureError(f"{payload.payload_id}: an empty salt is no namespace and isolates nothing")
        if owner.setdefault(payload.salt, payload.namespace) != payload.namespace:
            raise FixtureError(f"{payload.payload_id}: its salt is also that of another namespace")


def canary_body(screening: Screening, namespace: str) -> bytes:
    """A body of more than two chunks of words; the words are the same for every namespace of the screening."""
    least = 2 * max(screening.engine.chunk_size or 0, screening.engine.block_size) + 64
    words = " ".join(_WORDS[_pick(screening.name, i)] for i in range(least))
    salted = screening.request.salt
    text = words if salted else f"{namespace} {words}"
    body: dict[str, Any] = {
        "model": screening.engine.model,
        "temperature": screening.request.temperature,
        "seed": screening.request.seed,
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if screening.request.api == "chat":
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    if salted:
        body["cache_salt"] = namespace
    if screening.request.thinking is not None and screening.request.api == "chat":
        body["chat_template_kwargs"] = {"enable_thinking": screening.request.thinking}
    return orjson.dumps(body)


def _namespace(screening: Screening, pair: int, number: int) -> str:
    """Equal in all arms of a pair, and never one of the plan's: those hash no such text."""
    return hashlib.sha256(f"isolation canary|{screening.name}|{pair}|{number}".encode()).hexdigest()[:32]


def _pick(name: str, position: int) -> int:
    return hashlib.sha256(f"{name}|{position // 32}".encode()).digest()[position % 32] % len(_WORDS)
