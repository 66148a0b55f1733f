"""Bodies again: what was sent is what was built, the allowed hits follow from it, and answers are judged once more."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson

from harness.analysis.expected import Prefixes, expected_bounds, shared_prefixes
from harness.model.payload import Payload, PlantedValue
from harness.rules.answers import judge, judge_length

if TYPE_CHECKING:
    from harness.analysis.grid import Grid, IntArray, Layout
    from harness.analysis.ledger import Ledger
    from harness.model.planned import PlannedBlock, PlannedRequest
    from harness.model.screening import AnswerForm, EngineSpec, Reach, Screening
    from harness.model.stored import StoredBlock, StoredRun

BOUNDS = ("expected_local_min", "expected_local_max", "expected_external_min", "expected_external_max")
_PASSED = frozenset({"correct", "forced_ok"})
_MORE = frozenset({"foreign", "drift", "transfer_suspect"})
"""Verdicts that rest on more than the row itself (other namespaces, a control request): a wrong answer backs them."""
_NOTHING = object()


class BlockBodies:
    """The payloads of one block as payloads.json knows them; equal ones are shared by the blocks of a pair."""

    def __init__(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        self.fields = fields
        self.own: dict[str, set[int]] = {}
        """Namespace → values planted there."""
        for payload in fields.values():
            self.own.setdefault(payload.get("namespace", ""), set()).update(_planted(payload))
        self.planted = frozenset(value for values in self.own.values() for value in values)
        """Values planted anywhere in the block."""
        self.canonical = {
            payload_id: _written(payload)
            for payload_id, payload in fields.items()
            if payload.get("expected") is not None
        }
        """The right answers as JSON text, without and with a space after each separator: how nearly all are written."""
        self._values: dict[str, Payload] = {}

    def payload(self, payload_id: str) -> Payload | None:
        """One payload as a value, or None where the block does not know it."""
        if payload_id not in self._values:
            fields = self.fields.get(payload_id)
            if fields is None:
                return None
            self._values[payload_id] = _payload(fields)
        return self._values[payload_id]


class Bodies:
    """Payloads of the blocks of one grid, parsed once each and dropped with the grid."""

    def __init__(self, run: StoredRun, layout: Layout) -> None:
        self._run = run
        self._layout = layout
        self._blocks: dict[int, BlockBodies] = {}
        self._latest: BlockBodies | None = None
        self._on_file: dict[int, tuple[Mapping[str, Any], npt.NDArray[np.object_], IntArray]] = {}
        self._shared: dict[int, tuple[Mapping[str, Any], Prefixes]] = {}
        self._right: dict[int, tuple[BlockBodies, npt.NDArray[np.object_]]] = {}

    def of(self, block: StoredBlock) -> BlockBodies:
        """The payloads of a block."""
        if block.position not in self._blocks:
            # A copy, because a reader's lazy mapping may keep what it parsed for as long as it lives.
            fields = dict(copy.copy(block.payloads))
            if self._latest is None or self._latest.fields != fields:
                self._latest = BlockBodies(fields)
            self._blocks[block.position] = self._latest
        return self._blocks[block.position]

    def payload(self, block: StoredBlock, payload_id: str) -> Payload | None:
        """One payload as a value, or None where the block does not know it."""
        return self.of(block).payload(payload_id)

    def on_file(self, block: StoredBlock, planned: PlannedBlock) -> tuple[npt.NDArray[np.object_], IntArray]:
        """(SHA-256, prompt tokens) per key as payloads.json says; None and -1 where it does not know the body."""
        fields = self.of(block).fields
        done = self._on_file.get(id(planned.requests))
        if done is not None and done[0] is fields:
            return done[1], done[2]
        digest = np.full(len(self._layout.keys), None, dtype=object)
        count = np.full(len(self._layout.keys), -1, dtype=np.int64)
        for request in planned.requests:
            payload = fields.get(request.payload_id)
            if payload is not None:
                k = self._layout.index[request.key]
                digest[k], count[k] = payload["sha256"], payload["prompt_tokens"]
        self._on_file[id(planned.requests)] = (fields, digest, count)
        return digest, count

    def right(self, block: StoredBlock, planned: PlannedBlock) -> npt.NDArray[np.object_]:
        """The texts of `BlockBodies.canonical` per key, shape (2, keys); what equals no text where none is asked."""
        kept = self.of(block)
        done = self._right.get(id(planned.requests))
        if done is None or done[0] is not kept:
            texts = np.full((2, len(self._layout.keys)), _NOTHING, dtype=object)
            for request in planned.requests:
                if request.check == "exact" and request.payload_id in kept.canonical:
                    texts[:, self._layout.index[request.key]] = kept.canonical[request.payload_id]
            done = (kept, texts)
            self._right[id(planned.requests)] = done
        return done[1]

    def bounds(self, block: StoredBlock, planned: PlannedBlock, engine: EngineSpec, reach: Reach) -> IntArray:
        """Expected (local min, max, external min, max) per key, shape (4, keys); -1 where not derivable."""
        kept = self.of(block)
        done = self._shared.get(id(planned.requests))
        if done is None or done[0] is not kept.fields:
            done = (kept.fields, shared_prefixes(planned.requests, kept.fields, self._layout))
            self._shared[id(planned.requests)] = done
        return expected_bounds(done[1], engine, reach)


def audit_payloads(grid: Grid, planned: Sequence[PlannedBlock], bodies: Bodies, ledger: Ledger) -> None:
    """The digest and token count of every row are those of the body in payloads.json, the same in both arms."""
    sent = grid.texts("payload_sha256")
    tokens = grid.ints("planned_tokens")
    ok = grid.flags("ok")
    for i, (block, plan) in enumerate(zip(grid.blocks, planned, strict=True)):
        digest, count = bodies.on_file(block, plan)
        lost = (ok.values[i] == 0) & np.array([value is None for value in sent[i]])  # failed before anything was sent
        other = grid.present[i] & np.not_equal(sent[i], digest) & (count >= 0) & ~lost
        for k in np.flatnonzero(other):
            words = f"{block.path}: sent {sent[i, k]}, the body on file is {digest[k]}"
            ledger.add("audit.digest", grid.layout.keys[k], words, block=block.position)
        for k in np.flatnonzero(grid.present[i] & (tokens.values[i] != count) & (count >= 0)):
            words = f"{block.path}: {tokens.values[i, k]} planned tokens, the body on file has {count[k]}"
            ledger.add("audit.derived", grid.layout.keys[k], words, block=block.position)
        for k in np.flatnonzero(grid.planned[i] & (count < 0)):
            words = f"{block.path}: payloads.json does not know its body"
            ledger.add("audit.file_missing", grid.layout.keys[k], words, block=block.position)


def audit_expectations(
    grid: Grid, planned: Sequence[PlannedBlock], bodies: Bodies, screening: Screening, ledger: Ledger
) -> IntArray:
    """The allowed hits stored in every row follow from plan, payloads and the arm's reach.

    Returns what the rules are to be checked against, shape (4, blocks, keys): the derived bounds, and the stored ones
    only where nothing can be derived (which is a finding by itself).
    """
    stored = [grid.ints(name) for name in BOUNDS]
    out = np.stack([column.values for column in stored])
    for i, (block, plan) in enumerate(zip(grid.blocks, planned, strict=True)):
        wanted = bodies.bounds(block, plan, screening.engine, screening.arm(plan.arm).reach)
        values = np.stack([column.values[i] for column in stored])
        known = np.stack([column.known[i] for column in stored])
        wrong = (((values != wanted) | ~known) & (wanted >= 0)).any(axis=0) & grid.present[i]
        for k in np.flatnonzero(wrong):
            words = f"{block.path}: stored {values[:, k].tolist()}, derived {wanted[:, k].tolist()} (local, external)"
            ledger.add("audit.expectation", grid.layout.keys[k], words, block=block.position)
        for k in np.flatnonzero((wanted[0] < 0) & grid.present[i]):
            words = f"{block.path}: payloads.json lacks the common prefixes this request needs"
            ledger.add("audit.expectation", grid.layout.keys[k], words, block=block.position)
        out[:, i] = np.where(wanted >= 0, wanted, values)
    return out


def audit_answers(grid: Grid, planned: Sequence[PlannedBlock], bodies: Bodies, ledger: Ledger) -> None:
    """Judging every stored answer again gives the stored verdict; the known value comes from the body, not the row."""
    verdicts, answers = grid.texts("verdict"), grid.texts("answer")
    ok, output = grid.flags("ok"), grid.ints("completion_tokens")
    for i, (block, plan) in enumerate(zip(grid.blocks, planned, strict=True)):
        kept, right = bodies.of(block), bodies.right(block, plan)
        # Nearly all rows: stored as correct, and the answer is the right one to the letter.
        sure = (verdicts[i] == "correct") & (answers[i] == right).any(axis=0)
        open_ = grid.present[i] & (ok.values[i] != 0) & ~sure
        for request in plan.requests:
            k = grid.layout.index[request.key]
            if not open_[k] or request.payload_id not in kept.fields:
                continue
            stored = verdicts[i, k]
            again = _judged(request, kept, answers[i, k], int(output.values[i, k]))
            if not _agree(stored, again):
                words = f"{block.path}: stored {stored}, judged again {again}"
                ledger.add("audit.verdict", request.key, words, block=block.position)


def _judged(request: PlannedRequest, kept: BlockBodies, answer: str | None, output: int) -> str:
    if request.check == "none":
        return "unchecked"
    if request.check == "forced":
        return judge_length(output, request.forced_tokens or 0).verdict
    fields = kept.fields[request.payload_id]
    expected = fields.get("expected")
    if expected is None:
        return "unchecked"
    text = answer or ""
    if text in kept.canonical.get(request.payload_id, ()):
        return "correct"
    own = kept.own.get(fields.get("namespace", ""), ())
    return judge(text, expected=expected, foreign=kept.planted, own=own, form=_form(fields)).verdict


def _agree(stored: str | None, again: str) -> bool:
    if stored == again:
        return True
    return stored in _MORE and again not in _PASSED and again != "unchecked"


def _planted(payload: Mapping[str, Any]) -> list[int]:
    values = [int(item["value"]) for item in payload.get("values") or ()]
    return [*values, *(payload.get("expected") or {}).values()]


def _form(fields: Mapping[str, Any]) -> AnswerForm:
    return "array" if fields.get("answer_form") == "array" else "object"


def _written(fields: Mapping[str, Any]) -> tuple[str, str]:
    """The right answer as JSON text, without and with a space after each separator."""
    expected = fields["expected"]
    if _form(fields) == "array":
        text = orjson.dumps(list(expected.values())).decode()
        return text, text.replace(",", ", ")
    text = orjson.dumps(expected).decode()
    return text, text.replace('":', '": ').replace(',"', ', "')


def _payload(fields: Mapping[str, Any]) -> Payload:
    return Payload(
        payload_id=fields["payload_id"],
        namespace=fields["namespace"],
        salt=fields.get("salt"),
        sha256=fields["sha256"],
        nbytes=fields["nbytes"],
        prompt_tokens=fields["prompt_tokens"],
        path=fields["path"],
        values=tuple(PlantedValue(**item) for item in fields.get("values") or ()),
        expected=fields.get("expected"),
        lcp=fields["lcp"],
        lcp_with_answer=fields["lcp_with_answer"],
        largest_foreign_lcp=fields["largest_foreign_lcp"],
        answer_form=_form(fields),
    )
