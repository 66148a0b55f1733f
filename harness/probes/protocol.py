"""Layer 6, protocol: eleven named checks of streaming and tool calls, at every replica of the ON arm."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import orjson
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_fixed

from harness.client import Call, ClientSettings, ReplicaClient, open_client
from harness.model.counting import Counter
from harness.model.observation import Failed, Observation
from harness.model.screening import Screening
from harness.probes import protocol_checks as judge
from harness.probes.results import Check, LayerResult, from_checks, not_validated
from harness.probes.system import OnStep, System, ignore_step

CHAT = "/v1/chat/completions"
STREAMED_TOKENS = 24
FEW_TOKENS = 5
CANCELLED_TOKENS = 1_000
"""Output that a cancelled request was promised: seconds of work that must not be done."""
TOOL_TOKENS = 512
FREE_WITHIN_S = 20.0
TOOL = "set_sign"
TOOL_VALUES: dict[str, tuple[Any, ...]] = {"colour": ("red", "green"), "lit": (True, False)}
"""Every argument is from a closed set, so that a model of any size can only answer validly."""
SPARSE = 2.0
"""Frequency penalty of the tool call. Grammars allow white space between JSON tokens, and a small model may never stop
writing it; the penalty makes it stop. The grammar still decides what the call looks like."""
_PROMPT = "Say which colour the sign at the harbour gate has, and whether it is lit."


async def run(system: System, screening: Screening, on_step: OnStep = ignore_step) -> LayerResult:
    """All checks at all replicas; not validated where the engine is not driven through chat streams."""
    if screening.engine.kind == "llama-cpp":
        return not_validated("protocol", "an engine with vLLM's chat stream (llama.cpp's server has another)")
    started, problems, missing = time.monotonic(), dict[str, list[str]](), dict[str, None]()
    async with (
        open_client(ClientSettings(timeout_s=screening.request.timeout_s)) as client,
        httpx.AsyncClient(trust_env=False, timeout=screening.request.timeout_s) as plain,
    ):
        for name, url in system.urls.items():
            probe = Probe(system=system, screening=screening, name=name, url=url, client=client, plain=plain)
            for check, problem in (await probe.all(on_step)).items():
                problems.setdefault(check, []).extend(f"{name}: {words}" for words in (problem,) if words)
            missing.update(dict.fromkeys(filter(None, [probe.missing])))
    checks = [
        Check(name=check, trials=len(system.urls), failures=len(found), detail="; ".join(found))
        for check, found in problems.items()
    ]
    facts = {"replicas": list(system.urls)}
    done = from_checks("protocol", checks, facts=facts, seconds=time.monotonic() - started)
    if missing and done.status == "passed":
        words = f"partly: {'; '.join(missing)}"
        return replace(done, status="not_validated", missing=words, summary=f"not validated, {words}")
    return done


class NotOfferedError(Exception):
    """The engine was started without what a check needs."""


@dataclass(slots=True, kw_only=True)
class Probe:
    """The checks of one replica."""

    system: System
    screening: Screening
    name: str
    url: str
    client: ReplicaClient
    plain: httpx.AsyncClient
    nonce: str = field(default_factory=lambda: secrets.token_hex(6))
    missing: str | None = None
    """What the engine does not offer as it was started; its check did not run."""
    _sent: int = 0

    async def all(self, on_step: OnStep) -> dict[str, str | None]:
        """Check → what is wrong, None where nothing is: five on one stream, six of their own."""
        whole = await self._stream(STREAMED_TOKENS)
        found = {check: self._judged(whole, judgement) for check, judgement in judge.STREAM.items()}
        own: dict[str, Callable[[], Awaitable[str | None]]] = {
            "error answer has status, message, type, code": self._error,
            "tool-call deltas are one call with valid JSON": self._tool,
            "stop string ends the stream before it": lambda: self._stop(whole),
            "max_tokens is exact, finish_reason length": self._length,
            "a cancelled stream frees its slot": self._cancel,
            "an unknown model is a 404": self._unknown_model,
        }
        for check, run_check in own.items():
            on_step(f"{self.name}: {check}", len(found), len(judge.STREAM) + len(own))
            try:
                found[check] = await run_check()
            except NotOfferedError as refused:
                self.missing = str(refused)
            except httpx.HTTPError as error:
                found[check] = f"{type(error).__name__}: {error}"
        return found

    @staticmethod
    def _judged(seen: Observation, judgement: Callable[[Observation], str | None]) -> str | None:
        return judgement(seen) if seen.events else f"no stream: {seen.outcome}"

    def _body(self, **more: Any) -> dict[str, Any]:
        """A chat request under a salt of its own, so that none of the checks depends on what another one cached."""
        self._sent += 1
        body: dict[str, Any] = {
            "model": self.screening.engine.model,
            "messages": [{"role": "user", "content": _PROMPT}],
            "temperature": 0,
            "seed": self.screening.request.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_salt": f"p-{self.nonce}-{self.name.lower()}-{self._sent}",
        }
        if self.screening.request.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": self.screening.request.thinking}
        return {**body, **more}

    async def _send(self, body: dict[str, Any]) -> Observation:
        return await self.client.send(Call(replica=self.name, url=self.url, path=CHAT, body=orjson.dumps(body)))

    async def _stream(self, tokens: int, **more: Any) -> Observation:
        return await self._send(self._body(max_tokens=tokens, ignore_eos=True, **more))

    async def _error(self) -> str | None:
        answer = await self.plain.post(self.url + CHAT, json=self._body(max_tokens=4, temperature=-1.0))
        return judge.error_shape(answer.status_code, answer.content, range(400, 500))

    async def _unknown_model(self) -> str | None:
        body = self._body(max_tokens=4, model=f"no-such-model-{self.nonce}")
        answer = await self.plain.post(self.url + CHAT, json=body)
        return judge.error_shape(answer.status_code, answer.content, range(404, 405))

    async def _tool(self) -> str | None:
        properties = {name: {"enum": list(values)} for name, values in TOOL_VALUES.items()}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        tool = {"type": "function", "function": {"name": TOOL, "description": "Set the sign.", "parameters": schema}}
        choice = {"type": "function", "function": {"name": TOOL}}
        body = self._body(max_tokens=TOOL_TOKENS, tools=[tool], tool_choice=choice, frequency_penalty=SPARSE)
        seen = await self._send(body)
        if (
            isinstance(seen.outcome, Failed)
            and seen.http_status == httpx.codes.BAD_REQUEST
            and "tool" in seen.outcome.detail
        ):
            raise NotOfferedError(f"tool calls ({seen.outcome.detail})")
        # The simulator answers a forced call with arguments of its own, so only their form can be asked for there.
        return judge.tool_call(seen, TOOL, None if self.screening.engine.kind == "sim" else TOOL_VALUES)

    async def _stop(self, whole: Observation) -> str | None:
        at = judge.stop_string(whole.content)
        if at is None:
            return f"no text to stop at in {whole.content!r}"
        return judge.stopped(await self._stream(STREAMED_TOKENS, stop=[at]), whole.content, at)

    async def _length(self) -> str | None:
        return judge.length(await self._stream(FEW_TOKENS), FEW_TOKENS)

    async def _cancel(self) -> str | None:
        """Hang up after the first content; a short request must then find the replica free.

        Gauges are set on engine steps only, so the short request also brings them up to date; the counter of generated
        tokens says whether the rest of the promised output was made all the same.
        """
        before = (await self.system.snapshot())[self.name]
        body = self._body(max_tokens=CANCELLED_TOKENS, min_tokens=CANCELLED_TOKENS, ignore_eos=True)
        async with self.plain.stream("POST", self.url + CHAT, json=body) as answer:
            async for line in answer.aiter_lines():
                if _has_content(line):
                    break
        short = await self._stream(FEW_TOKENS)
        if not short.ok:
            return f"the request after it failed: {short.outcome}"
        if (busy := await self._free()) is not None:
            return f"{FREE_WITHIN_S:.0f} s after the client hung up {busy}"
        after = (await self.system.snapshot())[self.name]
        made, begun = after.samples.get(Counter.GENERATED_TOKENS), before.samples.get(Counter.GENERATED_TOKENS, 0)
        if made is not None and made - begun >= CANCELLED_TOKENS:
            return f"{made - begun:.0f} tokens were generated all the same"
        return None

    async def _free(self) -> str | None:
        """Wait until the replica is idle; what it was still busy with when the wait was over, else None."""
        retrying = AsyncRetrying(
            retry=retry_if_result(lambda busy: busy is not None),
            stop=stop_after_delay(FREE_WITHIN_S),
            wait=wait_fixed(0.02),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        busy: str | None = await retrying(self._busy)
        return busy

    async def _busy(self) -> str | None:
        now = (await self.system.snapshot())[self.name]
        if now.running or now.waiting:
            return f"{now.running or 0:.0f} requests run and {now.waiting or 0:.0f} wait"
        return None


def _has_content(line: str) -> bool:
    """True for an SSE line whose chunk carries content."""
    if not line.startswith("data: {"):
        return False
    choices = orjson.loads(line.removeprefix("data: ")).get("choices") or [{}]
    return bool((choices[0].get("delta") or {}).get("content"))
