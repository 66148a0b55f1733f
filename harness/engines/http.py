"""The few HTTP questions that starting and fingerprinting ask. Environment proxies never apply."""

from __future__ import annotations

from typing import Any

import httpx

PROBE_TIMEOUT_S = 5.0


def open_probe() -> httpx.AsyncClient:
    """A client for probes: no proxies, no redirects, no kept connections (a listener may change between two probes)."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(trust_env=False, timeout=PROBE_TIMEOUT_S, limits=limits)


async def served_models(client: httpx.AsyncClient, url: str) -> tuple[str, ...] | None:
    """Ids in `/v1/models`, None where the answer is not such a list."""
    body = await get_json(client, f"{url}/v1/models")
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        return None
    return tuple(str(entry["id"]) for entry in data if isinstance(entry, dict) and "id" in entry)


async def get_json(client: httpx.AsyncClient, url: str) -> Any | None:
    """The JSON of a 200 answer, None for everything else (refused, other status, other content)."""
    try:
        response = await client.get(url)
        return response.json() if response.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError):
        return None


async def get_text(client: httpx.AsyncClient, url: str) -> str | None:
    """The body of a 200 answer, None for everything else."""
    try:
        response = await client.get(url)
    except httpx.HTTPError:
        return None
    return response.text if response.status_code == httpx.codes.OK else None
