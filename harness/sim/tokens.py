"""Text to token ids and back, fast enough for 256k-token prompts.

Strategy: a prompt is split at its special tokens and each segment's ids are memoised, so a history that was seen
before costs a dictionary look-up. Byte-level BPE files run on tiktoken with the file's own ranks (about ten times
faster than `tokenizers`); whatever that cannot express, or encodes differently in a self-check, runs on `tokenizers`.
"""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tiktoken
import tokenizers
import xxhash

from harness.sim.blocks import Tokens

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How a ByteLevel pre-tokenizer with `use_regex` cuts text."""
MEMO_TOKENS = 8_000_000
"""Upper bound on memoised ids (32 MB)."""
MEMO_FILE_BYTES = 1_024
"""Segments at least this long are shared through files: reading one takes a tenth of the time of encoding it."""
DECODE_PIECE = 2_048
"""Ids decoded, and memoised, together."""
DECODE_PIECES = 4_096
"""Upper bound on memoised pieces (about 30 MB)."""
SegmentKey = tuple[int, bytes]
"""(bytes, XXH3 digest) of a segment's text."""
PROBE = "@value alpha_beta = 012345\n  def f(x):\n\treturn 'it''s' + \"é中😀\"  # 10% 1,000 \r\n\n   end   \n"


class Backend(Protocol):
    """Ids of plain text (no special tokens in it) and bytes of ids."""

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""

    def token_bytes(self, ids: list[int]) -> bytes:
        """Bytes of `ids`, special tokens as their text."""


def byte_alphabet() -> dict[str, int]:
    """The printable stand-in that byte-level vocabularies use for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


class TiktokenBackend:
    """Byte-level BPE with the ranks of a tokenizer.json."""

    def __init__(self, spec: dict[str, Any]) -> None:
        alphabet = byte_alphabet()
        specials = {entry["content"]: int(entry["id"]) for entry in spec["added_tokens"]}
        vocabulary = {text: rank for text, rank in spec["model"]["vocab"].items() if text not in specials}
        self.ranks = {bytes(alphabet[c] for c in text): rank for text, rank in vocabulary.items()}
        self._encoding = tiktoken.Encoding(
            "sim", pat_str=GPT2_PATTERN, mergeable_ranks=self.ranks, special_tokens=specials
        )

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; releases the interpreter lock while it works."""
        return self._encoding.encode_ordinary(text)

    def token_bytes(self, ids: list[int]) -> bytes:
        """Bytes of `ids`."""
        return self._encoding.decode_bytes(ids)


class FallbackBackend:
    """Any tokenizer.json through the `tokenizers` package."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        """Ids of `text` without added special tokens."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, ids: list[int]) -> bytes:
        """Bytes of `ids`; a character cut in two comes back as a replacement character."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text.encode()


def _is_plain_byte_level(spec: dict[str, Any]) -> bool:
    """Whether the file is byte-level BPE that cuts text as GPT-2 does and changes nothing else."""
    pre, model = spec.get("pre_tokenizer") or {}, spec.get("model") or {}
    return (
        spec.get("normalizer") is None
        and pre.get("type") == "ByteLevel"
        and pre.get("use_regex", True)
        and not pre.get("add_prefix_space")
        and model.get("type") == "BPE"
        and not model.get("dropout")
        and not model.get("continuing_subword_prefix")
        and not any(entry.get("lstrip") or entry.get("rstrip") for entry in spec["added_tokens"])
    )


def choose_backend(path: Path) -> Backend:
    """Tiktoken where it is provably the same, else `tokenizers`."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    if _is_plain_byte_level(spec):
        try:
            fast: Backend = TiktokenBackend(spec)
        except (KeyError, ValueError):
            return FallbackBackend(path)
        if fast.encode(PROBE) == FallbackBackend(path).encode(PROBE):
            return fast
    return FallbackBackend(path)


class MemoFiles:
    """Ids of long segments in a folder that replicas share: what one has encoded, the next only reads.

    Without it the receiver of a cross-replica request would spend its deadline on tokenising.
    """

    def __init__(self, folder: Path, tokenizer: Path) -> None:
        self._folder = folder / xxhash.xxh3_64_hexdigest(tokenizer.read_bytes())
        self._folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: SegmentKey) -> Path:
        return self._folder / f"{key[0]}-{key[1].hex()}.ids"

    def get(self, key: SegmentKey) -> Tokens | None:
        """The ids, or None where nobody has written them."""
        try:
            return np.fromfile(self._path(key), dtype="<i4").astype(np.int32)
        except OSError:
            return None

    def put(self, key: SegmentKey, ids: Tokens) -> None:
        """Write so that no reader sees half a file; a full disk is not an error here."""
        path = self._path(key)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            ids.astype("<i4").tofile(part)
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)


class Tokenizer:
    """Ids of rendered prompts, memoised per segment between special tokens."""

    def __init__(self, directory: Path, memo: Path | None = None) -> None:
        path = directory / "tokenizer.json"
        self._memo_files = None if memo is None else MemoFiles(memo, path)
        spec = json.loads(path.read_text(encoding="utf-8"))
        self.backend = choose_backend(path)
        self.lossless = isinstance(self.backend, TiktokenBackend)
        """Whether ids decode to exactly the text they came from."""
        self.specials = {entry["content"]: int(entry["id"]) for entry in spec["added_tokens"]}
        self.vocab_size = 1 + max([*spec["model"]["vocab"].values(), *self.specials.values()])
        longest_first = sorted(self.specials, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
        self._memo: OrderedDict[SegmentKey, Tokens] = OrderedDict()
        self._memo_tokens = 0
        self._decoded: OrderedDict[bytes, bytes] = OrderedDict()
        self._singles: dict[int, bytes] = {}
        config_path = directory / "tokenizer_config.json"
        config = json.loads(config_path.read_text(encoding="utf-8")) if config_path.exists() else {}
        self.eos_id = self.specials.get(str(config.get("eos_token")), 0)
        self.words = self._plain_words()
        self.digit_tokens = self._digit_tokens()

    def encode(self, text: str) -> Tokens:
        """Ids of `text`, special tokens recognised, nothing added."""
        return self._joined(self._parts(text, new=len(text)) or [])

    def encode_known(self, text: str, *, new: int) -> Tokens | None:
        """Ids of `text`; None where more than `new` of its characters would have to be encoded for the first time."""
        parts = self._parts(text, new=new)
        return None if parts is None else self._joined(parts)

    def _parts(self, text: str, *, new: int) -> list[Tokens] | None:
        parts: list[Tokens] = []
        for i, piece in enumerate(self._split.split(text) if self._split else [text]):
            if i % 2:
                parts.append(np.array([self.specials[piece]], dtype=np.int32))
            elif piece:
                key, known = self._known(piece)
                if known is None:
                    new -= len(piece)
                    if new < 0:
                        return None
                    known = self._encode_new(key, piece)
                parts.append(known)
        return parts

    @staticmethod
    def _joined(parts: list[Tokens]) -> Tokens:
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def _encode_new(self, key: SegmentKey, text: str) -> Tokens:
        ids = np.array(self.backend.encode(text), dtype=np.int32)
        if self._memo_files is not None and key[0] >= MEMO_FILE_BYTES:
            self._memo_files.put(key, ids)
        self._remember(key, ids)
        return ids

    def _known(self, text: str) -> tuple[SegmentKey, Tokens | None]:
        """A segment's key, and its ids where they are in memory or in a file."""
        raw = text.encode()
        key = (len(raw), xxhash.xxh3_128_digest(raw))
        known = self._memo.get(key)
        if known is not None:
            self._memo.move_to_end(key)
            return key, known
        if self._memo_files is not None and key[0] >= MEMO_FILE_BYTES:
            known = self._memo_files.get(key)
            if known is not None:
                self._remember(key, known)
        return key, known

    def _remember(self, key: SegmentKey, ids: Tokens) -> None:
        self._memo[key] = ids
        self._memo_tokens += len(ids)
        while self._memo_tokens > MEMO_TOKENS and len(self._memo) > 1:
            self._memo_tokens -= len(self._memo.popitem(last=False)[1])

    def decode_bytes(self, ids: Tokens | list[int]) -> bytes:
        """Bytes of `ids`, memoised per piece; ids outside the vocabulary come back as some word."""
        array = np.asarray(ids, dtype=np.int32)
        if array.size and (int(array.min()) < 0 or int(array.max()) >= self.vocab_size):
            array = np.where((array >= 0) & (array < self.vocab_size), array, self.words[0])
        return b"".join(self._piece(array[at : at + DECODE_PIECE]) for at in range(0, array.size, DECODE_PIECE))

    def single(self, token: int) -> bytes:
        """Bytes of one id, memoised (at most the vocabulary)."""
        known = self._singles.get(token)
        if known is None:
            known = self._singles[token] = self.decode_bytes([token])
        return known

    def _piece(self, ids: Tokens) -> bytes:
        if ids.size < DECODE_PIECE:
            return self.backend.token_bytes(ids.tolist())
        key = xxhash.xxh3_128_digest(np.ascontiguousarray(ids).tobytes())
        known = self._decoded.get(key)
        if known is None:
            known = self._decoded[key] = self.backend.token_bytes(ids.tolist())
            if len(self._decoded) > DECODE_PIECES:
                self._decoded.popitem(last=False)
        else:
            self._decoded.move_to_end(key)
        return known

    def _single(self) -> dict[int, bytes]:
        special = set(self.specials.values())
        return {i: self.backend.token_bytes([i]) for i in range(min(self.vocab_size, 65_536)) if i not in special}

    def _plain_words(self) -> list[int]:
        """Ids that stand for a space and lower-case letters: what filler text is made of."""
        words = [i for i, raw in self._single().items() if re.fullmatch(rb" [a-z]{3,9}", raw)]
        return words or [i for i in range(self.vocab_size) if i not in set(self.specials.values())][:256]

    def _digit_tokens(self) -> dict[int, bytes]:
        """Ids made of digits only: what a corrupted transfer alters."""
        return {i: raw for i, raw in self._single().items() if raw.isdigit()}
