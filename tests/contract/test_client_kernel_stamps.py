"""Kernel stamps against the send stamps of an emitter in another process: late readers do not make late stamps."""

from __future__ import annotations

import asyncio
import ctypes
import statistics
import time
from collections.abc import Callable

import pytest

from harness.client import Call, ClientSettings, calibrate, open_client
from harness.client.calibrate import UNCERTAIN_NS, emitter_process, emitter_report
from harness.client.reader import stamps_available
from harness.model.observation import Observation

pytestmark = pytest.mark.skipif(not stamps_available(), reason="no kernel stamps on this machine")

BLOCK_NS = 50_000_000
TTFT_MS = 30
ROUNDS = 7


def hold_the_loop() -> None:
    """Other threads may run, the event loop may not."""
    time.sleep(BLOCK_NS / 1e9)


def hold_the_interpreter() -> None:
    """No thread of this process may run: a C function called without giving up the interpreter's lock."""
    ctypes.PyDLL(None).usleep(BLOCK_NS // 1000)


async def blocked(url: str, name: str, block: Callable[[], None], rate: float) -> Observation:
    """One request whose first token arrives while the client is blocked."""
    headers = {"x-emit-events": "4", "x-emit-rate": str(rate), "x-emit-ttft-ms": str(TTFT_MS)}
    async with open_client(ClientSettings(transport="kernel")) as client:
        call = Call(replica="A", url=url, path="/v1/chat/completions", body=b"{}", request_id=name, headers=headers)
        sending = asyncio.create_task(client.send(call))
        await asyncio.sleep(TTFT_MS / 2 / 1000)
        block()
        return await sending


def errors_ns(seen: list[Observation], sent: dict[str, list[list[int]]]) -> list[int]:
    """Errors of TTFT where the emitter's own stamp can be trusted."""
    errors = []
    for one in seen:
        assert one.request_id is not None
        before, after = sent[one.request_id][0]
        if after - before < UNCERTAIN_NS:
            assert one.stamps.first_content_ns is not None
            errors.append(one.stamps.first_content_ns - before)
    assert errors, "the emitter was interrupted in every round"
    return errors


async def test_a_blocked_event_loop_does_not_move_the_first_token() -> None:
    async with emitter_process() as url:
        seen = [await blocked(url, f"r{index}", hold_the_loop, rate=50) for index in range(ROUNDS)]
        sent = (await emitter_report(url))["sent"]
    assert statistics.median(errors_ns(seen, sent)) <= 500_000
    assert {one.stamp_source for one in seen} == {"kernel"}


async def test_the_row_says_how_long_the_loop_was_blocked() -> None:
    async with emitter_process() as url:
        seen = await blocked(url, "r", hold_the_loop, rate=50)
    assert seen.health.loop_lag_max_ns is not None
    assert seen.health.loop_lag_max_ns >= BLOCK_NS * 0.8


async def test_a_blocked_interpreter_does_not_move_a_first_token_that_waits_alone() -> None:
    async with emitter_process() as url:
        seen = [await blocked(url, f"r{index}", hold_the_interpreter, rate=5) for index in range(ROUNDS)]
        sent = (await emitter_report(url))["sent"]
    late = [one.health.kernel_delay_first_content_ns or 0 for one in seen]
    assert statistics.median(errors_ns(seen, sent)) <= 500_000
    assert statistics.median(late) >= 10_000_000


async def test_calibration_gives_an_error_bar_with_the_source_of_its_stamps() -> None:
    bar = await calibrate(ClientSettings(transport="kernel"), requests=5)
    assert bar.stamp_source == "kernel"
    assert bar.requests + bar.uncertain == 5
    assert 0 < bar.median_ns <= bar.p99_ns <= bar.max_ns
    assert bar.as_dict()["transport"] == "kernel"
