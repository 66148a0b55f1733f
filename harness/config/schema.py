"""The shape of a declaration file: what each table may hold, with types and bounds. Meanings: docs/declarations.md.

Strategy: these models mirror the TOML, nothing more. Whatever needs two fields at once is a cross-check
(`crosscheck`), so that one wrong table does not hide what is wrong in the others.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}$")
Name = Annotated[str, StringConstraints(pattern=NAME.pattern)]
ReplicaName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,19}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[0-9a-z.]{1,12}$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scale = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
PromptTokens = Annotated[int, Field(ge=64, le=10_000_000)]
Argv = Annotated[list[Text], Field(min_length=1)]


class Table(BaseModel):
    """A table whose unknown keys are errors and whose types are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True)


T = TypeVar("T", bound=Table)


class Head(Table):
    """Top-level keys that are no tables."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    description: Text
    order: Annotated[list[Name], Field(min_length=2)]
    order_kind: Literal["counterbalanced", "pairs"] = "counterbalanced"
    baseline: Name
    factor: list[Text] = []
    seed: int
    deadline_s: Seconds | None = None


class CommandsTable(Table):
    """Argument lists that drive a process on another host."""

    start: Argv
    stop: Argv
    status: Argv


class ReplicaTable(Table):
    """One replica."""

    name: ReplicaName
    url: Text
    argv: Argv | None = None
    commands: CommandsTable | None = None
    env: dict[str, str] = {}


class EngineTable(Table):
    """The engine of every arm."""

    kind: Literal["sim", "vllm", "vllm-cpu", "sglang", "llama-cpp", "remote"]
    model: Text
    tokenizer: Text
    model_dir: Text | None = None
    block_size: Positive
    chunk_size: Positive | None = None
    external_queries: Literal["n_minus_local", "n"] = "n_minus_local"
    hybrid: bool = False
    env: dict[str, str] = {}
    start_timeout_s: Seconds = 600.0
    stop_timeout_s: Seconds = 30.0
    void_log_patterns: list[Text] = []
    options: dict[str, Any] = {}
    replicas: Annotated[list[ReplicaTable], Field(min_length=2)]


class ServiceTable(Table):
    """A process that an arm needs beside its replicas."""

    kind: Literal["sim-cache", "lmcache", "command"]
    url: Text
    argv: Argv | None = None
    commands: CommandsTable | None = None
    env: dict[str, str] = {}
    health_path: Annotated[str, StringConstraints(pattern=r"^/")] = "/healthcheck"
    start_timeout_s: Seconds = 120.0
    stop_timeout_s: Seconds = 20.0


class ArmTable(Table):
    """What an arm adds."""

    reach: Literal["none", "replica", "all"]
    args: list[Text] = []
    env: dict[str, str] = {}
    services: list[Name] = []


class RequestTable(Table):
    """What all requests have in common."""

    api: Literal["chat", "completions"] = "chat"
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: int = 314159
    max_tokens: Positive = 64
    timeout_s: Seconds = 600.0
    salt: bool = True
    connection: Literal["new", "reused"] = "new"
    ignore_eos: bool = False
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    thinking: bool | Literal["unset"] = False
    response_format: Literal["json_schema"] | None = None


class SizeTable(Table):
    """A nominal prompt size."""

    label: Label
    tokens: PromptTokens
    time_scale: Scale = 1.0


Sizes = Annotated[list[SizeTable], Field(min_length=1)]
Placements = Annotated[list[Literal["fixed", "alternating"]], Field(min_length=1)]


class ChainsTable(Table):
    """Cold, local-1, local-2, cross, receiver-local."""

    sizes: Sizes
    chains: Positive


class SessionsTable(Table):
    """Multi-turn sessions."""

    sizes: Sizes
    placements: Placements
    sessions: Positive
    turns: Annotated[int, Field(ge=2)]
    turn_tokens: Positive
    gap_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class GenerationTable(Table):
    """Forced output lengths, cold and hot."""

    sizes: Sizes
    outputs: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)]


class ConcurrencyTable(Table):
    """Windows of several sessions at once."""

    size: SizeTable
    windows: Annotated[list[Annotated[int, Field(ge=2, le=99)]], Field(min_length=1)]
    placements: Placements
    turns: Annotated[int, Field(ge=2)]
    turn_tokens: Positive
    answer_form: Literal["object", "array"] = "object"


class WarmupTable(Table):
    """Warm-ups of a block."""

    per_replica: Annotated[int, Field(ge=0)] = 3
    tokens: PromptTokens = 512
    time_scale: Scale = 1.0


class WorkloadsTable(Table):
    """The workloads of a block."""

    chains: ChainsTable | None = None
    sessions: SessionsTable | None = None
    generation: GenerationTable | None = None
    concurrency: ConcurrencyTable | None = None
    warmup: WarmupTable = WarmupTable()


class ChecksTable(Table):
    """Output checks that apply to the model."""

    answers: Literal["exact", "none"] = "exact"
    count_tolerance: Annotated[int, Field(ge=0)] = 40
    reserve_values: bool = True
    style: Literal["marker", "prose"] = "marker"


class SimOptions(Table):
    """`engine.options` of the simulator: handed to its processes as JSON."""

    settings: dict[str, Any] = {}
    cache_settings: dict[str, Any] = {}


class VllmOptions(Table):
    """`engine.options` of both vLLM kinds."""

    python: Text | None = None
    args: list[Text] = []
    cpus: dict[str, str] = {}
    lmcache_args: list[Text] = []


class SglangOptions(Table):
    """`engine.options` of SGLang."""

    python: Text | None = None
    args: list[Text] = []
    cpus: dict[str, str] = {}


class LlamaCppOptions(Table):
    """`engine.options` of llama.cpp's server."""

    server: Text | None = None
    args: list[Text] = []
    cpus: dict[str, str] = {}


class RemoteOptions(Table):
    """`engine.options` of replicas that others start: there are none."""


OPTIONS: dict[str, type[Table]] = {
    "sim": SimOptions,
    "vllm": VllmOptions,
    "vllm-cpu": VllmOptions,
    "sglang": SglangOptions,
    "llama-cpp": LlamaCppOptions,
    "remote": RemoteOptions,
}
