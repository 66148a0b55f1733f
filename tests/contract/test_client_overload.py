"""A client that shares its core with a CPU hog: no row is wrong without saying so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.client import Call, ClientSettings, client_limited, open_client
from harness.client.calibrate import UNCERTAIN_NS, emitter_process, emitter_report
from harness.client.reader import stamps_available
from harness.client.settings import TransportName

TOLERATED_NS = 8_000_000
"""Threshold of the loop's lag (5 ms), interval of its probe (2 ms) and the resolution of timers (1 ms)."""

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2, reason="needs two cores to pin processes to"
)


@pytest.fixture
def hogged_core() -> Iterator[None]:
    """Pin this process to one core, together with three processes that never rest."""
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    os.sched_setaffinity(0, {core})
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    yield
    for hog in hogs:
        hog.kill()
        hog.wait()
    os.sched_setaffinity(0, allowed)


@pytest.mark.usefixtures("hogged_core")
@pytest.mark.parametrize("transport", ["kernel", "callback", "httpx"])
async def test_every_row_of_an_overloaded_client_is_exact_or_says_that_it_is_not(transport: TransportName) -> None:
    if transport == "kernel" and not stamps_available():
        pytest.skip("no kernel stamps on this machine")
    headers = {"x-emit-events": "4", "x-emit-rate": "100", "x-emit-ttft-ms": "20"}
    other_core = max(os.sched_getaffinity(os.getppid()) | {1})
    async with emitter_process(pin_to=other_core) as url, open_client(ClientSettings(transport=transport)) as client:
        seen = [
            await client.send(
                Call(
                    replica="A",
                    url=url,
                    path="/v1/chat/completions",
                    body=b"{}",
                    request_id=f"r{index}",
                    headers=headers,
                )
            )
            for index in range(15)
        ]
        sent = (await emitter_report(url))["sent"]
    for row in seen:
        assert row.request_id is not None
        assert row.stamps.first_content_ns is not None
        before, after = sent[row.request_id][0]
        if after - before < UNCERTAIN_NS and client_limited(row) is None:
            assert row.stamps.first_content_ns - before <= TOLERATED_NS
