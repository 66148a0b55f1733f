"""A built request body: its bytes, digest, token counts and planted values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.model.screening import AnswerForm


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedValue:
    """A value hidden in the text: its name, the number, and the rendered token position it starts at."""

    name: str
    value: int
    token_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Everything known about a body before it is sent. The bytes themselves lie in `path`, and are sent as they lie."""

    payload_id: str
    namespace: str
    salt: str | None
    sha256: str
    """SHA-256 of the body bytes, hex."""
    nbytes: int
    prompt_tokens: int
    """Tokens of the whole rendered prompt by the engine's own tokenizer and template = `usage.prompt_tokens`."""
    path: str
    """File name of the body relative to the block's `fixtures/` folder."""
    values: tuple[PlantedValue, ...]
    expected: Mapping[str, int] | None
    """The answer that is right: name → value; None where nothing is asked."""
    lcp: Mapping[str, int]
    """Earlier payload id of the same namespace → longest common prefix of the two rendered prompts, in tokens."""
    lcp_with_answer: Mapping[str, int]
    """The same against earlier prompt + its canonical answer: the most that a cache which keeps output can share."""
    largest_foreign_lcp: int
    """Longest common token prefix with any prompt of any other namespace."""
    answer_form: AnswerForm = "object"
    """Whether `expected` is asked for as an object, or as an array of the values in its order."""
