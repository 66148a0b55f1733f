"""When a process is ready: own child alive, its tree owns the listener, `/health` answers, the right model is served.

Strategy: every way of not becoming ready fails as soon as it is known, with a phase of its own; only "not yet" waits.
The child's end is an event, so a start that dies at once is reported at once.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

import httpx
from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_delay, wait_exponential

from harness.engines import http, ports, tree
from harness.engines.events import LaunchEvent, OnEvent
from harness.engines.layout import ProcessPlan
from harness.engines.processes import LocalProcess
from harness.engines.remote import RemoteProcess
from harness.model.errors import EngineError

_BIND_ERROR = re.compile(r"address already in use|errno 98|EADDRINUSE|error while attempting to bind", re.IGNORECASE)


class NotYetError(Exception):
    """Not ready yet; the text says what is still missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What the wait needs besides the plan."""

    client: httpx.AsyncClient
    marker: str
    """What `KVABBA_RUN_ID` holds in every descendant of this process."""
    on_event: OnEvent
    expected_s: float | None = None


async def check_free(plan: ProcessPlan, client: httpx.AsyncClient) -> None:
    """Refuse a start where somebody already answers; the phase says how dangerous it would have been.

    Raises:
        EngineError: phase `decoy_same_model` (a left-over would have looked healthy), `decoy_other_model`, or
            `port_busy` (it does not speak the API).
    """
    if plan.argv is None:
        if await http.get_text(client, plan.url + plan.health_path) is not None and plan.commands is not None:
            raise EngineError(f"{plan.name}: {plan.url} already answers before its start", phase="already_running")
        return
    if not ports.in_use(plan.address):
        return
    owners = ", ".join("an unknown process" if pid is None else f"pid {pid}" for pid in ports.listeners(plan.address))
    models = await http.served_models(client, plan.url)
    served = f", which serves {', '.join(models)}" if models else ""
    phase = "port_busy"
    if models is not None:
        phase = "decoy_same_model" if plan.model in models else "decoy_other_model"
    raise EngineError(
        f"{plan.name}: port {plan.address.port} is already taken by {owners or 'an unknown process'}{served}",
        phase=phase,
        hint="End that process, or declare port 0 for a free port at each launch.",
    )


Started = LocalProcess | RemoteProcess | None
"""How a process came to run; None: it runs all the time and is only looked at."""


async def wait_ready(plan: ProcessPlan, process: Started, watch: Watch) -> float:
    """Return the seconds until ready.

    Raises:
        EngineError: phase `bind_error` or `child_exited` (with exit code and log tail), `foreign_listener`,
            `wrong_model`, or `health_timeout` (what was missing last is in the message).
    """
    started = time.monotonic()
    poll = asyncio.ensure_future(_poll(plan, process, watch, started))
    gone = asyncio.ensure_future(process.exited()) if isinstance(process, LocalProcess) else None
    try:
        await asyncio.wait({poll, gone} if gone else {poll}, return_when=asyncio.FIRST_COMPLETED)
        if gone is not None and isinstance(process, LocalProcess) and gone.done():
            raise _exited(plan, process, gone.result())
        await poll
    finally:
        for task in (poll, gone):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in (poll, gone) if task is not None), return_exceptions=True)
    return time.monotonic() - started


async def _poll(plan: ProcessPlan, process: Started, watch: Watch, started: float) -> None:
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(NotYetError),
        stop=stop_after_delay(plan.start_timeout_s),
        wait=wait_exponential(multiplier=0.05, max=0.5),
    )
    try:
        async for attempt in retrying:
            with attempt:
                await _attempt(plan, process, watch, started)
    except RetryError as error:
        missing = error.last_attempt.exception()
        raise EngineError(
            f"{plan.name}: not ready after {plan.start_timeout_s:.0f} s: {missing}",
            phase="health_timeout",
            log_tail=_log_tail(process),
            hint="Raise start_timeout_s if the log shows progress.",
        ) from missing


async def _attempt(plan: ProcessPlan, process: Started, watch: Watch, started: float) -> None:
    try:
        if isinstance(process, LocalProcess):
            _check_listener(plan, process, watch.marker)
        elif process is not None:
            await _check_status(process)
        await _check_health(plan, watch.client)
        await _check_model(plan, process, watch.client)
    except NotYetError as missing:
        seconds = time.monotonic() - started
        watch.on_event(
            LaunchEvent(
                process=plan.name, phase="starting", seconds=seconds, expected_s=watch.expected_s, detail=str(missing)
            )
        )
        raise


def _check_listener(plan: ProcessPlan, process: LocalProcess, marker: str) -> None:
    owners = ports.listeners(plan.address)
    if not owners:
        raise NotYetError(f"nobody listens on port {plan.address.port}")
    own = {identity.pid for identity in tree.descendants([process.id], marker)}
    if owners <= own:
        return
    foreign = sorted("an unknown process" if pid is None else f"pid {pid}" for pid in owners - own)
    raise EngineError(
        f"{plan.name}: {', '.join(foreign)} listens on port {plan.address.port}, not the process that was started",
        phase="foreign_listener",
        log_tail=process.log_tail(),
        hint="Another server took the port; its answers must not be measured.",
    )


async def _check_status(process: RemoteProcess) -> None:
    if not await process.is_up():
        raise NotYetError("its status command does not exit 0 yet")


async def _check_health(plan: ProcessPlan, client: httpx.AsyncClient) -> None:
    try:
        response = await client.get(plan.url + plan.health_path)
    except httpx.HTTPError as error:
        raise NotYetError(f"{plan.health_path}: {type(error).__name__}") from error
    if response.status_code != httpx.codes.OK:
        raise NotYetError(f"{plan.health_path}: HTTP {response.status_code}")


async def _check_model(plan: ProcessPlan, process: Started, client: httpx.AsyncClient) -> None:
    if plan.model is None:
        return
    models = await http.served_models(client, plan.url)
    if models is None:
        raise NotYetError("/v1/models: no list of models")
    if plan.model not in models:
        raise EngineError(
            f"{plan.name}: serves {', '.join(models) or 'no model'}, not {plan.model}",
            phase="wrong_model",
            log_tail=_log_tail(process),
            hint="Check the served model name of the declaration.",
        )


def _log_tail(process: Started) -> str | None:
    return process.log_tail() if isinstance(process, LocalProcess) else None


def _exited(plan: ProcessPlan, process: LocalProcess, code: int) -> EngineError:
    text = process.log_tail()
    bind = _BIND_ERROR.search(text) is not None
    return EngineError(
        f"{plan.name}: ended with exit code {code} before it was ready" + (" (address already in use)" if bind else ""),
        phase="bind_error" if bind else "child_exited",
        process_exit=code,
        log_tail=text,
        hint="See the log tail." if text else "It wrote nothing before it ended.",
    )
