"""From recovered content to output tokens: how many, which, and the text each adds."""

from __future__ import annotations

import codecs
from collections import OrderedDict
from dataclasses import dataclass, field

import xxhash

from harness.sim import answers
from harness.sim.faults import ActiveFaults
from harness.sim.settings import ReplicaSettings
from harness.sim.tokens import Tokenizer

ANSWER_BOUND = 1024
"""Tokens reserved for an answer of unforced length."""
REMEMBERED = 32
"""Planned outputs that are kept: a hot request asks again for what its cold one got."""
UNICODE_FILLER = " 中文é😀—ü Ω"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The request parameters that decide the output's length and shape."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    seed: int = 0
    forced_tool: str | None = None
    tool_finish: str = "stop"

    def bound(self, settings: ReplicaSettings) -> int:
        """Most tokens this request can produce."""
        if self.ignore_eos:
            return self.max_tokens
        free = settings.reasoning_tokens + max(settings.filler_tokens, ANSWER_BOUND)
        return min(self.max_tokens, max(free, self.min_tokens))


@dataclass(slots=True)
class Output:
    """The planned output: `pieces[i]` is the visible text that token i adds; an end token adds none."""

    tokens: list[int]
    pieces: list[str]
    finish: str
    stop_reason: str | None = None
    reasoning: int = 0

    @property
    def text(self) -> str:
        """All content text (reasoning excluded)."""
        return "".join(self.pieces[self.reasoning :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What an answer is read from: recovered bytes, whether any were reused, whether a connector is on."""

    text: bytes
    reused: bool
    connector: bool = False
    faults: ActiveFaults = field(default_factory=lambda: ActiveFaults([]))


class Planner:
    """Plans outputs and remembers the last ones.

    A hot request may have less time to its first token than planning 2,048 tokens takes, which would be the host's
    doing and not the modelled engine's.
    """

    def __init__(self, tokenizer: Tokenizer, settings: ReplicaSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._known: OrderedDict[tuple[bytes, Sampling, bool], Output] = OrderedDict()

    def plan(self, sampling: Sampling, source: Source) -> Output:
        """The output for this content; nothing is remembered where a fault may change it."""
        if source.faults.kinds():
            return plan(self._tokenizer, self._settings, sampling, source)
        key = (xxhash.xxh3_128_digest(source.text), sampling, source.connector)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = plan(self._tokenizer, self._settings, sampling, source)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return known


def plan(tokenizer: Tokenizer, settings: ReplicaSettings, sampling: Sampling, source: Source) -> Output:
    """The whole output of one request, decided before its first token."""
    bound = sampling.bound(settings)
    reasoning = min(settings.reasoning_tokens, bound)
    ids = _filler(tokenizer, settings, sampling, source, reasoning) if reasoning else []
    body = _body(tokenizer, settings, sampling, source, bound - reasoning)
    ids += body
    if len(ids) < min(sampling.min_tokens, bound):
        ids += _filler(tokenizer, settings, sampling, source, min(sampling.min_tokens, bound) - len(ids))
    finish = "length"
    if not sampling.ignore_eos and len(ids) < bound:
        ids, finish = [*ids, tokenizer.eos_id], "stop"
    output = Output(ids[:bound], pieces(tokenizer, ids[:bound]), finish, reasoning=reasoning)
    _apply_stop(output, sampling.stop)
    if sampling.forced_tool is not None and output.finish == "stop":
        output.finish = sampling.tool_finish
    return output


def _body(tokenizer: Tokenizer, settings: ReplicaSettings, sampling: Sampling, source: Source, room: int) -> list[int]:
    if sampling.ignore_eos:
        return _filler(tokenizer, settings, sampling, source, room)
    wrong = "wrong_model_answer" in source.faults or ("numeric_drift" in source.faults and source.reused)
    text = answers.answer(source.text, shift=1 if wrong else 0)
    if text is None and sampling.forced_tool is not None:
        text = f'{{"value":{sampling.seed % 1_000_000}}}'
    if text is None:
        return _filler(tokenizer, settings, sampling, source, min(room, settings.filler_tokens))
    return [int(i) for i in tokenizer.encode(text)]


def _filler(
    tokenizer: Tokenizer, settings: ReplicaSettings, sampling: Sampling, source: Source, count: int
) -> list[int]:
    variant = "connector" if settings.text_varies_by_source and source.connector else ""
    ids = answers.filler(
        tokenizer, source.text, count, seed=(settings.seed ^ sampling.seed) & (2**63 - 1), variant=variant
    )
    if settings.filler_alphabet == "words":
        return ids
    mixed = [i for k, word in enumerate(ids) for i in ([word] if k % 3 else tokenizer.encode(UNICODE_FILLER).tolist())]
    return mixed[:count]


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Text added by each token; a character that spans tokens comes with its last one, special tokens are silent."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    special = set(tokenizer.specials.values())
    return ["" if i in special else decoder.decode(tokenizer.single(i)) for i in ids]


def _apply_stop(output: Output, stops: tuple[str, ...]) -> None:
    """Cut at the earliest stop string: it ends the output and is not shown."""
    text = "".join(output.pieces)
    found = sorted((at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0)
    if not found:
        return
    at, stop = found[0]
    length = 0
    for index, piece in enumerate(output.pieces):
        length += len(piece)
        if length >= at + len(stop):
            del output.tokens[index + 1 :], output.pieces[index + 1 :]
            break
    room = at
    for index, piece in enumerate(output.pieces):
        output.pieces[index] = piece[:room]
        room -= len(output.pieces[index])
    output.finish, output.stop_reason = "stop", stop
