"""The tokenizer directory's own chat template, rendered as transformers renders it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = dict[str, Any]


class ChatTemplateError(ValueError):
    """The template is missing or refuses these messages."""


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def load_source(directory: Path) -> str:
    """The template's text: chat_template.jinja, else `chat_template` in tokenizer_config.json."""
    own = directory / "chat_template.jinja"
    if own.exists():
        return own.read_text(encoding="utf-8")
    config_path = directory / "tokenizer_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8")) if config_path.exists() else {}
    source = config.get("chat_template")
    if isinstance(source, list):
        source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
    if not isinstance(source, str):
        raise ChatTemplateError(f"no chat template in {directory.name}")
    return source


class ChatTemplate:
    """Messages to prompt text."""

    def __init__(self, directory: Path) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda layout: datetime.now().astimezone().strftime(layout)
        self._template = environment.from_string(load_source(directory))
        config_path = directory / "tokenizer_config.json"
        config = json.loads(config_path.read_text(encoding="utf-8")) if config_path.exists() else {}
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        self._tokens = {name: config[name] for name in names if isinstance(config.get(name), str)}

    def render(
        self, messages: list[Message], *, generation_prompt: bool = True, tools: Any = None, **kwargs: Any
    ) -> str:
        """The prompt of `messages`; `kwargs` are the request's chat_template_kwargs."""
        flat = [{**message, "content": text_of(message.get("content"))} for message in messages]
        try:
            return self._template.render(
                messages=flat, add_generation_prompt=generation_prompt, tools=tools, **self._tokens, **kwargs
            )
        except (TemplateError, TypeError) as error:
            raise ChatTemplateError(str(error)) from error


def text_of(content: Any) -> str:
    """A message's content as one string; lists of text parts are joined."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        return "\n".join(part["text"] for part in content)
    raise ChatTemplateError("content must be a string or a list of text parts")
