"""The plan of a screening: every request of every block, before any server or fixture exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.screening import AnswerForm, Placement

Workload = Literal["chains", "sessions", "generation", "concurrency", "warmup"]
Role = Literal["cold", "local", "cross", "receiver_local", "turn", "hot", "warmup"]
Check = Literal["exact", "forced", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPayload:
    """One body to be built. Pure intent: text and counts come from the fixtures.

    `payload_id` is unique within a screening and equal in both blocks of a pair, e.g. `p1/sessions/32k/alternating/0/turn-3`.
    """

    payload_id: str
    pair: int
    namespace: str
    """Hex digest that starts the first message; never contains arm, block position, attempt or time."""
    workload: Workload
    size: str
    nominal_tokens: int
    """Target of the *first* body of the unit."""
    turn: int
    """0-based turn; the body holds turns 0 … turn with canonical answers in between."""
    turn_tokens: int
    """Increment of the rendered prompt per later turn (0 where there are none)."""
    max_tokens: int
    forced_tokens: int | None
    """Exactly this many output tokens (`ignore_eos`, `min_tokens = max_tokens`), else None."""
    asks: tuple[int, ...]
    """Indices of the planted values this turn asks for (0–2 the usual three, 3–4 the reserve values)."""
    answer_in_history: bool
    """True where the canonical history already contains the answer: such a check does not verify recovery."""
    answer_form: AnswerForm = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request of one block. `(pair, key)` is equal in the two blocks of a pair and unique within each."""

    key: str
    seq: int
    """Order within the block, 0-based, warm-ups first."""
    pair: int
    workload: Workload
    unit: str
    """The matched unit: `chains/8k/0`, `sessions/32k/fixed/1`, `generation/8k/512`, `concurrency/4/fixed`."""
    step: str
    """`cold`, `local-1`, `local-2`, `cross`, `receiver-local`, `turn-1` …, `hot`; in a window `s03/turn-2`."""
    role: Role
    turn: int
    size: str
    nominal_tokens: int
    placement: Placement | None
    window: str | None
    """Name of the concurrency window, else None: such requests have no counters of their own."""
    session: int | None
    replica: str
    payload_id: str
    after_same_replica: tuple[str, ...]
    """Payload ids of the same namespace sent earlier to this replica: what its own prefix cache may hold."""
    after_any_replica: tuple[str, ...]
    """Payload ids of the same namespace sent earlier to any replica: what a shared tier may hold."""
    max_tokens: int
    forced_tokens: int | None
    check: Check
    answer_in_history: bool
    time_scale: float
    warmup: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBlock:
    """One block: a fresh start of every process of one arm."""

    position: int
    """1-based position in the screening."""
    pair: int
    """1-based block pair (or palindrome half, with more than two arms)."""
    arm: str
    plays: str
    """The arm this block stands for in comparisons; differs from `arm` only in an A/A screening."""
    warmups: tuple[PlannedRequest, ...]
    requests: tuple[PlannedRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Blocks in order, and every payload they send."""

    screening: str
    digest: str
    """SHA-256 of the canonical JSON of this plan without its digest."""
    aa: bool
    blocks: tuple[PlannedBlock, ...]
    payloads: tuple[PlannedPayload, ...]
    """Every measured payload, then every warm-up payload (`workload == "warmup"`)."""
