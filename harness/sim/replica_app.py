"""A replica over HTTP: vLLM's endpoints."""

from __future__ import annotations

import time

import orjson

from harness.sim import VERSION, api_request
from harness.sim.api_request import ApiError
from harness.sim.api_response import error_event
from harness.sim.generate_api import JSON, GenerateApi, Parts
from harness.sim.http_server import Request, Response
from harness.sim.job import EngineDeadError


class ReplicaApp:
    """Routes of one replica."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._generate = GenerateApi(parts)
        self.warming = False
        self._routes = {
            ("POST", "/v1/chat/completions"): self._generate.chat,
            ("POST", "/v1/completions"): self._generate.completion,
            ("GET", "/health"): self._health,
            ("GET", "/ping"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/reset_prefix_cache"): self._reset,
            ("GET", "/server_info"): self._server_info,
        }

    async def handle(self, request: Request, response: Response) -> None:
        """Route one request; refusals take vLLM's error shape."""
        route = self._routes.get((request.method, request.path))
        try:
            if route is not None:
                await route(request, response)
            elif any(path == request.path for _, path in self._routes):
                response.send(405, b'{"detail":"Method Not Allowed"}', JSON)
            else:
                response.send(404, b'{"detail":"Not Found"}', JSON)
        except ApiError as error:
            response.send(error.status, orjson.dumps(error.body), JSON)
        except EngineDeadError:
            response.send(500, error_event(), JSON)

    async def _health(self, _: Request, response: Response) -> None:
        response.send(503 if self._parts.engine.dead or self.warming else 200, b"", JSON)

    async def _version(self, _: Request, response: Response) -> None:
        response.send(200, orjson.dumps({"version": VERSION}), JSON)

    async def _models(self, _: Request, response: Response) -> None:
        card = {
            "id": self._parts.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "simulated",
            "root": self._parts.model,
            "parent": None,
            "max_model_len": self._parts.settings.max_model_len,
        }
        response.send(200, orjson.dumps({"object": "list", "data": [card]}), JSON)

    async def _tokenize(self, request: Request, response: Response) -> None:
        data = api_request.parse_object(request.body)
        self._generate.check_model(str(data.get("model") or ""))
        prompts, messages = self._parts.prompts, data.get("messages")
        if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
            text = prompts.render(
                messages,
                tools=data.get("tools"),
                kwargs=data.get("chat_template_kwargs") or {},
                generation=bool(data.get("add_generation_prompt", True)),
            )
        elif isinstance(data.get("prompt"), str):
            text = data["prompt"]
        else:
            raise ApiError(400, "messages or prompt is needed")
        ids = (await prompts.encode(text)).tolist()
        longest = self._parts.settings.max_model_len
        body = {"count": len(ids), "max_model_len": longest, "tokens": ids, "token_strs": None}
        response.send(200, orjson.dumps(body), JSON)

    async def _detokenize(self, request: Request, response: Response) -> None:
        ids, tokenizer = api_request.parse_object(request.body).get("tokens"), self._parts.prompts.tokenizer
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < tokenizer.vocab_size for i in ids):
            raise ApiError(400, "tokens must be a list of token ids", param="tokens")
        response.send(200, orjson.dumps({"prompt": tokenizer.decode_bytes(ids).decode("utf-8", "replace")}), JSON)

    async def _metrics(self, _: Request, response: Response) -> None:
        fault = self._parts.book.process("empty_metrics")
        mode = None if fault is None else fault.text("mode")
        if mode == "empty":
            response.send(200, b"", "text/plain")
        elif mode == "html":
            response.send(200, b"<html><body>not metrics</body></html>", "text/html")
        else:
            response.send(200, self._parts.exposition.text(), "text/plain; version=0.0.4; charset=utf-8")

    async def _reset(self, request: Request, response: Response) -> None:
        lie, engine = self._parts.book.process("reset_lies"), self._parts.engine
        mode = None if lie is None else lie.text("mode")
        if mode == "404":
            response.send(404, b'{"detail":"Not Found"}', JSON)
        elif mode == "empty":
            response.send(200, b"", JSON)
        elif mode is not None:
            response.send(200, orjson.dumps({"success": mode == "true_noop"}), JSON)
        else:
            success = engine.reset()
            if success and request.query.get("reset_external") == "true" and engine.tier is not None:
                success = await engine.tier.reset()
            response.send(200, orjson.dumps({"success": success}), JSON)

    async def _server_info(self, _: Request, response: Response) -> None:
        config = self._parts.settings.model_dump(mode="json")
        response.send(200, orjson.dumps({"version": VERSION, "model": self._parts.model, "sim_settings": config}), JSON)
