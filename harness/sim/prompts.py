"""From a request to the token ids of its prompt."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

import numpy as np

from harness.sim.api_request import ApiError, ApiRequest
from harness.sim.blocks import Tokens
from harness.sim.chat_template import ChatTemplate, ChatTemplateError, text_of
from harness.sim.tokens import Tokenizer

LONG_TEXT = 8_192
"""New characters beyond which a text is encoded in a thread: as many as take one or two milliseconds.

Shorter ones are encoded in turn, so that requests which arrive together are admitted in the order of their arrival.
"""


class Prompts:
    """Renders and encodes prompts with one tokenizer directory; `threads` encode what is long and new."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, threads: Executor | None = None) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._threads = threads

    async def of(self, api: ApiRequest) -> tuple[str, Tokens]:
        """The prompt's text (empty for token ids) and its ids."""
        if isinstance(api.prompt, list):
            if max(api.prompt) >= self.tokenizer.vocab_size:
                raise ApiError(400, f"Token id {max(api.prompt)} is out of vocabulary", param="prompt")
            return "", np.array(api.prompt, dtype=np.int32)
        text = api.prompt
        if text is None:
            text = self.render(api.messages or [], tools=api.tools, kwargs=api.template_kwargs)
        return text, await self.encode(text)

    async def encode(self, text: str) -> Tokens:
        """Ids of a text; other streams do not wait for a long new one, and a known one does not wait for a thread."""
        known = self.tokenizer.encode_known(text, new=LONG_TEXT)
        if known is not None:
            return known
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.tokenizer.encode, text)

    def render(
        self, messages: list[dict[str, Any]], *, tools: Any, kwargs: dict[str, Any], generation: bool = True
    ) -> str:
        """Messages as the chat template shows them; their bare text where there is no template."""
        try:
            if self._template is None:
                return "".join(text_of(message.get("content")) for message in messages)
            return self._template.render(messages, generation_prompt=generation, tools=tools, **kwargs)
        except ChatTemplateError as error:
            raise ApiError(400, str(error), param="messages") from error
