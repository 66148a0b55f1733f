"""This project's client in the place of a peer: a closed loop of streams, one JSON file of records at the end.

Run by the benchmark as a script of its own: `python -m tests.bench.peers.own_client SETTINGS_JSON`. Requests are
decoded after the last one has ended, as a runner with several requests in flight does; `decode_cpu_s` says what that
cost. The event loop is the one the harness itself runs on.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from harness.client import Call, ClientSettings, client_limited, open_client
from harness.client.replica_client import RawResult, ReplicaClient
from harness.model.observation import Observation

PROMPT = " ".join(f"word{index}" for index in range(64))


def call_of(url: str, index: int) -> Call:
    """A request as the peers send it: about 64 words of prompt, streamed, usage asked for."""
    body = {
        "model": "sim",
        "messages": [{"role": "user", "content": f"{index} {PROMPT}"}],
        "max_completion_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    data = json.dumps(body).encode()
    return Call(
        replica="emitter", url=url, path="/v1/chat/completions", body=data, request_id=f"own-{index}", timeout_s=120
    )


async def closed_loop(client: ReplicaClient, calls: list[Call], streams: int) -> list[RawResult]:
    """Keep `streams` requests in flight until all calls are done."""
    waiting, results = iter(calls), []

    async def one_stream() -> None:
        for call in waiting:
            results.append(await client.exchange(call))  # noqa: PERF401 - a comprehension would hide partial results

    await asyncio.gather(*(one_stream() for _ in range(streams)))
    return results


def record(observation: Observation) -> dict[str, Any]:
    """What the benchmark compares; ns of the monotonic clock. `end_ns` is when the process had the last bytes."""
    stamps = observation.stamps
    return {
        "key": observation.request_id,
        "start_ns": stamps.start_ns,
        "first_ns": stamps.first_content_ns,
        "end_ns": max((user for _, user, _ in observation.reads), default=None),
        "tokens": sum(event.kind == "content" for event in observation.events),
        "ok": observation.ok,
        "limited": client_limited(observation),
        "stamp_source": observation.stamp_source,
    }


async def main(settings: dict[str, Any]) -> dict[str, Any]:
    """Send, decode, describe."""
    wish = ClientSettings(transport=settings["transport"], connection=settings["connection"], timeout_s=120)
    calls = [call_of(settings["url"], index) for index in range(settings["requests"])]
    async with open_client(wish) as client:
        raw = await closed_loop(client, calls, settings["streams"])
        before = time.process_time()
        observations = [client.observe(result) for result in raw]
        spent = time.process_time() - before
    return {"decode_cpu_s": spent, "records": [record(observation) for observation in observations]}


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    gc.collect()
    Path(told["out"]).write_text(json.dumps(asyncio.run(main(told))))
