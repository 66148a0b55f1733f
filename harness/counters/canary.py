"""Asking a replica to forget its prefix cache, and what its answer is worth (case ISO-2).

A status code proves nothing: servers answer 200 while an outer tier still serves the blocks. Whatever this module
returns, only a canary request that hits nothing proves a cold cache; a reply can merely prove that it is *not* cold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

import httpx
from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_attempt, wait_fixed

from harness.model.errors import EngineError

ResetMeaning = Literal["claimed", "refused", "unknown", "not_available"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetReply:
    """What a replica answered to `/reset_prefix_cache`."""

    success: bool | None
    """The body's own word; None where it has none (empty body, no JSON, no endpoint)."""
    status: int
    body: str

    @property
    def meaning(self) -> ResetMeaning:
        """claimed: says it did. refused: says it did not. unknown: says nothing. not_available: no such endpoint."""
        if self.status in {httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED}:
            return "not_available"
        if self.status != httpx.codes.OK or self.success is False:
            return "refused"
        return "claimed" if self.success else "unknown"


async def reset_prefix_cache(client: httpx.AsyncClient, url: str, *, external: bool) -> ResetReply:
    """One POST to `/reset_prefix_cache`; `external` asks a connector to clear its tier as well.

    Raises:
        httpx.HTTPError: the replica cannot be reached.
    """
    params = {"reset_external": "true"} if external else {}
    response = await client.post(f"{url}/reset_prefix_cache", params=params)
    return ResetReply(success=_success(response.text), status=response.status_code, body=response.text[:500])


async def reset_or_abort(
    client: httpx.AsyncClient, url: str, *, external: bool, attempts: int = 5, interval_s: float = 0.5
) -> ResetReply:
    """Reset with a bounded number of tries: a replica refuses while blocks are held, pending stores included.

    Returns:
        A reply that is `claimed` or `unknown`; in both cases a canary has to decide.

    Raises:
        EngineError: phase `cache_reset`, when it still refuses after the last try, or at once when it has no reset.
    """
    retrying = AsyncRetrying(
        retry=retry_if_result(lambda reply: reply.meaning == "refused"),
        stop=stop_after_attempt(attempts),
        wait=wait_fixed(interval_s),
    )
    try:
        reply: ResetReply = await retrying(reset_prefix_cache, client, url, external=external)
    except RetryError as error:
        last: ResetReply = error.last_attempt.result()
        raise EngineError(
            f"{url}: the prefix cache was not reset after {attempts} tries: HTTP {last.status} {last.body!r}",
            phase="cache_reset",
            hint="Requests or pending stores still hold blocks; restart the replica instead.",
        ) from error
    if reply.meaning == "not_available":
        raise EngineError(
            f"{url}: has no /reset_prefix_cache (HTTP {reply.status})",
            phase="cache_reset",
            hint="vLLM offers it with VLLM_SERVER_DEV_MODE=1; or restart the replica instead.",
        )
    return reply


def _success(body: str) -> bool | None:
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    value = answer.get("success") if isinstance(answer, dict) else None
    return value if isinstance(value, bool) else None
