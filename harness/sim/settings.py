"""Settings of a replica and of the cache service, validated strictly: every problem is named at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.sim.fault_kinds import FAULTS
from harness.sim.faults import FaultSpec
from harness.sim.timing import TimeParams

Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0)]
PRESETS = Path(__file__).parent / "presets"


class SettingsError(ValueError):
    """Settings that cannot be used; `problems` names each with its path."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_sides(faults: list[FaultSpec], side: str) -> list[FaultSpec]:
    wrong = [spec.kind for spec in faults if side not in FAULTS[spec.kind].sides]
    if wrong:
        raise ValueError(f"not a fault of a {side}: {', '.join(wrong)}")
    return faults


def load_preset(name: str) -> dict[str, float]:
    """The time parameters of `presets/NAME.json`."""
    path = PRESETS / f"{name}.json"
    if not name.isidentifier() or not path.exists():
        known = ", ".join(sorted(p.stem for p in PRESETS.glob("*.json")))
        raise ValueError(f"unknown preset {name!r}; allowed: {known}")
    values: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["time"]
    return values


class ReplicaSettings(_Strict):
    """One replica. Times are s at scale 1 unless they end in a raw unit of their own."""

    block_size: Positive = 32
    """tokens per page of the prefix cache"""
    num_gpu_blocks: Positive = 16_384
    """pages; least recently freed ones are evicted"""
    max_model_len: Positive = 262_144
    """tokens, prompt and output together"""
    max_num_batched_tokens: Positive = 8_192
    """token budget of one engine step"""
    max_num_seqs: Positive = 64
    """sequences that run at once"""
    time: TimeParams = TimeParams()
    """the time model: its ten parameters, or the name of a preset"""
    time_scale: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """durations are multiplied by this unless a request's x-kvabba-time-scale says otherwise"""
    late_tolerance_s: Seconds = 0.002
    """real s: a chunk may be this late after its deadline …"""
    late_tolerance_share: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """… or this share of the time from arrival to deadline, whichever is more; beyond, it is a missed deadline"""
    external_queries_count: Literal["n_minus_local", "n"] = "n_minus_local"
    """what external queries count: an engine-version difference"""
    seed: int = 0
    """of filler text"""
    finish: Literal["with_content", "own_chunk"] = "with_content"
    """where finish_reason stands"""
    tokens_per_chunk: Positive = 1
    """tokens merged into one content delta"""
    reasoning_tokens: Annotated[int, Field(ge=0)] = 0
    """filler tokens sent as reasoning deltas before the content"""
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning"
    """name of the reasoning delta"""
    filler_tokens: Positive = 24
    """length of an answer to a prompt that asks nothing"""
    filler_alphabet: Literal["words", "unicode"] = "words"
    """`unicode` puts multi-byte characters into filler"""
    text_varies_by_source: bool = False
    """filler differs between a replica with and one without a connector"""
    mq_timeout_s: Seconds = 300.0
    """real s a request waits for a cache service that does not answer"""
    heartbeat_s: Annotated[float, Field(gt=0)] = 2.0
    """real s between two tries to find a lost cache service again"""
    on_load_failure: Literal["fail", "recompute"] = "fail"
    """what happens to a request whose load fails"""
    after_load_failure: Literal["unhealthy", "exit"] = "unhealthy"
    """what happens to the engine after a failed load"""
    warmup_requests: Annotated[int, Field(ge=0)] = 0
    """first requests that fault selectors do not see"""
    faults: list[FaultSpec] = []

    @field_validator("time", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = load_preset(value)
        if isinstance(value, dict):
            unknown = sorted(set(value) - set(TimeParams.__dataclass_fields__))
            if unknown:
                raise ValueError(
                    f"unknown: {', '.join(unknown)}; allowed: {', '.join(TimeParams.__dataclass_fields__)}"
                )
            bad = [k for k, v in value.items() if isinstance(v, bool) or not isinstance(v, int | float) or v < 0]
            if bad:
                raise ValueError(f"must be a number of seconds, 0 or more: {', '.join(bad)}")
        return value

    @field_validator("faults")
    @classmethod
    def _sides(cls, faults: list[FaultSpec]) -> list[FaultSpec]:
        return _check_sides(faults, "replica")

    @model_validator(mode="after")
    def _holds_one_request(self) -> Self:
        if self.block_size * self.num_gpu_blocks < self.max_model_len:
            raise ValueError("block_size * num_gpu_blocks is less than max_model_len: a longest request would not fit")
        return self


class Transfer(_Strict):
    """What moving chunks costs at the service itself; the replica's time model holds the rest."""

    bytes_per_token: Positive = 2_048
    """B of KV per token: what memory gauges show"""
    extra_s: Seconds = 0.0
    """real s that every retrieve is held back"""


class CacheSettings(_Strict):
    """The shared cache service."""

    chunk_size: Positive = 256
    """tokens per chunk"""
    capacity_chunks: Positive = 8_192
    """chunks that fit"""
    watermark: Annotated[float, Field(gt=0, le=1)] = 0.8
    """usage above which eviction begins"""
    eviction_ratio: Annotated[float, Field(gt=0, le=1)] = 0.2
    """share of stored chunks evicted at once"""
    store_delay_s: Seconds = 0.02
    """s at scale 1 from the end of a response (or of its prefill) until its chunks can be read"""
    store_after: Literal["response", "prefill"] = "response"
    """what a store completes after; a long answer hides the whole store where it is `prefill`"""
    transfer: Transfer = Transfer()
    store_generated: bool = False
    """whether chunks that hold generated tokens are stored too"""
    faults: list[FaultSpec] = []

    @field_validator("faults")
    @classmethod
    def _sides(cls, faults: list[FaultSpec]) -> list[FaultSpec]:
        return _check_sides(faults, "cache")


S = TypeVar("S", ReplicaSettings, CacheSettings)


def load(kind: type[S], source: str) -> S:
    """Settings from a file, or from JSON given inline (it starts with a brace)."""
    try:
        text = source if source.lstrip().startswith("{") else Path(source).read_text(encoding="utf-8")
        data = json.loads(text)
    except (OSError, json.JSONDecodeError) as error:
        raise SettingsError([f"settings: {error}"]) from error
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise SettingsError([_problem(entry) for entry in error.errors()]) from error


def _problem(entry: Any) -> str:
    path = ".".join(str(part) for part in entry["loc"]) or "settings"
    message = str(entry["msg"]).removeprefix("Value error, ")
    return f"{path}: {message}"
