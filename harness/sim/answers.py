"""What the engine answers: values read from recovered content, or deterministic filler.

The text handed in is decoded from what the caches hold plus the freshly computed tail, never from the request, so a
corrupted or foreign block has the consequence it would have in a real engine: a wrong answer, at full speed.
"""

from __future__ import annotations

import json
import random
import re

import xxhash

from harness.sim.tokens import Tokenizer

ASK, LIST = b"@ask ", b"@list "
_ASK_END = re.compile(rb"[\n\r<]")
_DIGITS = re.compile(rb"\d+")
_NAME = re.compile(rb"[a-z_][a-z0-9_]*")


def asked_names(text: bytes) -> tuple[list[str], bool]:
    """The names of the last `@ask` or `@list` line in order (none without one), and whether it was `@list`."""
    ask, listed = text.rfind(ASK), text.rfind(LIST)
    mark, at = (ASK, ask) if ask > listed else (LIST, listed)
    if at < 0:
        return [], False
    rest = text[at + len(mark) : at + len(mark) + 4096]
    end = _ASK_END.search(rest)
    return [name.decode() for name in _NAME.findall(rest[: end.start()] if end else rest)], mark is LIST


def planted_value(text: bytes, name: str) -> int | None:
    """The first value planted for `name` as `@value NAME = 123456`, or None."""
    mark = b"@value " + name.encode() + b" = "
    at = text.find(mark)  # a tenth of the time that a regular expression takes
    while at >= 0:
        if found := _DIGITS.match(text, at + len(mark)):
            return int(found.group())
        at = text.find(mark, at + 1)
    return None


def answer(text: bytes, *, shift: int = 0) -> str | None:
    """Compact JSON with the asked values (null where not found); None where nothing is asked.

    An object for `@ask`, an array in the order asked for `@list`.
    `shift` is added to the first value that was found: a wrong model, or drift between numerics.
    """
    names, as_list = asked_names(text)
    if not names:
        return None
    values: dict[str, int | None] = {name: planted_value(text, name) for name in names}
    for name, value in values.items():
        if shift and value is not None:
            values[name] = value + shift
            break
    return json.dumps(list(values.values()) if as_list else values, separators=(",", ":"))


def filler(tokenizer: Tokenizer, text: bytes, count: int, *, seed: int, variant: str = "") -> list[int]:
    """`count` word tokens that depend on the content, the seed and a variant only."""
    digest = xxhash.xxh3_64_intdigest(text, seed=seed) ^ xxhash.xxh3_64_intdigest(variant.encode())
    source = random.Random(digest)
    return source.choices(tokenizer.words, k=count)


def alter_values(tokenizer: Tokenizer, ids: list[int], *, limit: int | None = None) -> list[int]:
    """Change the last digits of up to `limit` planted values (all where None), keeping every token's length."""
    pieces = [tokenizer.backend.token_bytes([i]) for i in ids]
    text = b"".join(pieces)
    ends: set[int] = {m.end() for m in re.finditer(rb"@value [a-z_][a-z0-9_]* = \d+", text)}
    changed, altered, offset = list(ids), 0, 0
    for position, piece in enumerate(pieces):
        offset += len(piece)
        if offset in ends and piece.strip().isdigit() and (limit is None or altered < limit):
            changed[position] = _other_digits(tokenizer, ids[position], piece)
            altered += changed[position] != ids[position]
    return changed


def _other_digits(tokenizer: Tokenizer, token: int, piece: bytes) -> int:
    """Another token of as many digits, chosen by the token itself so that reruns agree."""
    same = sorted(i for i, raw in tokenizer.digit_tokens.items() if len(raw) == len(piece) and i != token)
    return same[token % len(same)] if same else token
