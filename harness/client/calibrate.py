"""The client's own error on this machine, measured in a second before a screening: the error bar beside each TTFT.

A small emitter in another process (`emitter.py`) writes down when it handed each event to its socket; the client's
stamp minus that is the error. It contains the way through loopback, some ten microseconds. Where the emitter itself was
interrupted in the middle of a send, the truth is not known well enough; such events are counted, not used.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from harness.client.replica_client import open_client
from harness.client.settings import Call, ClientSettings
from harness.model.errors import EngineError
from harness.model.observation import Observation

EMITTER = Path(__file__).with_name("emitter.py")
UNCERTAIN_NS = 200_000
"""A send that took longer than this says too little about when its bytes left."""
_EVENTS, _RATE, _TTFT_MS = 3, 200.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBar:
    """Error of TTFT on this machine with these settings: client's stamp − emitter's own send stamp, in ns."""

    requests: int
    uncertain: int
    """Requests left out, because the emitter was interrupted while it sent their first token."""
    median_ns: int
    p99_ns: int
    max_ns: int
    transport: str
    stamp_source: str
    connection: str

    def as_dict(self) -> dict[str, Any]:
        """For the run's header."""
        return asdict(self)


@asynccontextmanager
async def emitter_process(*, pin_to: int | None = None) -> AsyncIterator[str]:
    """An emitter in a process of its own, on core `pin_to` if given; yields its base URL."""
    pin = () if pin_to is None else ("taskset", "-c", str(pin_to))
    process = await asyncio.create_subprocess_exec(
        *pin, sys.executable, str(EMITTER), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    if process.stdout is None or process.stdin is None:
        raise EngineError("the emitter has no pipes", phase="calibration")
    try:
        port = (await process.stdout.readline()).strip().decode("ascii")
        if not port:
            raise EngineError("the emitter did not start", phase="calibration", process_exit=await process.wait())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stdin.close()
        await process.wait()


async def emitter_report(url: str) -> dict[str, Any]:
    """What the emitter wrote down since the last report."""
    async with httpx.AsyncClient(trust_env=False) as http:
        report: dict[str, Any] = (await http.get(f"{url}/report")).json()
    return report


async def calibrate(settings: ClientSettings, *, requests: int = 60) -> ErrorBar:
    """Measure the error bar; about 25 ms a request. Raises EngineError where a request of the emitter failed."""
    async with emitter_process() as url, open_client(settings) as client:
        await client.send(_call(url, "warm"))
        observations = [await client.send(_call(url, f"r{index}")) for index in range(requests)]
        sent = (await emitter_report(url))["sent"]
    return _error_bar(settings, observations, sent)


def _call(url: str, name: str) -> Call:
    headers = {"x-emit-events": str(_EVENTS), "x-emit-rate": str(_RATE), "x-emit-ttft-ms": str(_TTFT_MS)}
    return Call(
        replica="emitter",
        url=url,
        path="/v1/chat/completions",
        body=b"{}",
        request_id=name,
        headers=headers,
        timeout_s=10,
    )


def _error_bar(
    settings: ClientSettings, observations: Sequence[Observation], sent: Mapping[str, Sequence[Sequence[int]]]
) -> ErrorBar:
    errors: list[int] = []
    for observation in observations:
        first = observation.stamps.first_content_ns
        if first is None or observation.request_id is None:
            raise EngineError(f"calibration request failed: {observation.outcome}", phase="calibration")
        before, after = sent[observation.request_id][0]
        if after - before < UNCERTAIN_NS:
            errors.append(first - before)
    if not errors:
        raise EngineError("the emitter was interrupted in every request: this machine is too busy", phase="calibration")
    errors.sort()
    return ErrorBar(
        requests=len(errors),
        uncertain=len(observations) - len(errors),
        median_ns=errors[len(errors) // 2],
        p99_ns=errors[min(len(errors) - 1, len(errors) * 99 // 100)],
        max_ns=errors[-1],
        transport=settings.transport,
        stamp_source=observations[-1].stamp_source,
        connection=settings.connection,
    )
