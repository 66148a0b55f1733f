"""What a declaration in `blocks/*.toml` says, as frozen values. Durations are seconds, sizes are tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Reach = Literal["none", "replica", "all"]
"""Who can find what a replica stored outside its own prefix cache: nobody, only itself, or every replica."""

AnswerForm = Literal["object", "array"]
"""How an answer is asked for: name → value, or the values alone in the order asked (fewer tokens)."""
Placement = Literal["fixed", "alternating"]
EngineKind = Literal["sim", "vllm", "vllm-cpu", "sglang", "llama-cpp", "remote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """How a process on another host is driven: argv lists, run without a shell. `status` must exit 0 when it is up."""

    start: tuple[str, ...]
    stop: tuple[str, ...]
    status: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """One named replica. `argv` is the full command of a local process, or None with `commands` for another host."""

    name: str
    url: str
    argv: tuple[str, ...] | None = None
    commands: Commands | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A process that an arm needs beside its replicas, such as the shared cache service."""

    name: str
    kind: Literal["sim-cache", "lmcache", "command"]
    url: str
    """HTTP base URL of `/metrics`, `/status` and the health path."""
    argv: tuple[str, ...] | None = None
    commands: Commands | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    health_path: str = "/healthcheck"
    start_timeout_s: float = 120.0
    stop_timeout_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """The engine that every replica of every arm runs."""

    kind: EngineKind
    model: str
    """Served model name, as sent in every request and as `/v1/models` must list it."""
    tokenizer: str
    """Directory of the tokenizer and chat template, relative to the project's root."""
    replicas: tuple[ReplicaSpec, ...]
    block_size: int
    """Tokens of one prefix-cache block; compared with `cache_config_info` after the start."""
    chunk_size: int | None
    """Tokens of one chunk of the shared tier, None where no arm has one."""
    env: Mapping[str, str] = field(default_factory=dict)
    model_dir: str | None = None
    external_queries: Literal["n_minus_local", "n"] = "n_minus_local"
    """What this engine version counts as external queries of a request with n prompt tokens."""
    hybrid: bool = False
    """True for engines whose local hits need not be block-aligned nor equal across arms (Mamba, GDN)."""
    start_timeout_s: float = 600.0
    stop_timeout_s: float = 30.0
    void_log_patterns: tuple[str, ...] = ()
    """Regular expressions; a log line that matches one voids the block."""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pool_keeps_output(self) -> bool:
        """Whether a shared tier may hold chunks with generated tokens. LMCache 0.5.4 does; the simulator says itself."""
        if self.kind != "sim":
            return True
        return bool((self.options.get("cache_settings") or {}).get("store_generated", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A named treatment: what it adds to the engine's command line, environment and services."""

    name: str
    reach: Reach
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    services: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """What every request of the screening has in common."""

    api: Literal["chat", "completions"] = "chat"
    temperature: float = 0.0
    seed: int = 314159
    max_tokens: int = 64
    timeout_s: float = 600.0
    salt: bool = True
    connection: Literal["new", "reused"] = "new"
    ignore_eos: bool = False
    min_tokens: int | None = None
    thinking: bool | None = False
    """False sends `chat_template_kwargs: {enable_thinking: false}`; None sends nothing."""
    response_format: Literal["json_schema"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A nominal prompt size. `time_scale` asks a simulated engine to run that much faster; 1.0 on real engines."""

    label: str
    tokens: int
    time_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainsSpec:
    """Cold(X), local-1(X), local-2(X), cross(Y), receiver-local(Y), per size and chain."""

    sizes: tuple[Size, ...]
    chains: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsSpec:
    """Multi-turn sessions at a fixed replica or alternating between replicas."""

    sizes: tuple[Size, ...]
    placements: tuple[Placement, ...]
    sessions: int
    turns: int
    turn_tokens: int
    gap_s: float = 0.0
    """Idle time between a turn's recorded row and the next turn, the same in every arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSpec:
    """Cold and hot prefix with a forced number of output tokens."""

    sizes: tuple[Size, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySpec:
    """Windows of several sessions at once; counters are read once around a window."""

    size: Size
    windows: tuple[int, ...]
    placements: tuple[Placement, ...]
    turns: int
    turn_tokens: int
    answer_form: AnswerForm = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupSpec:
    """Requests before the first measured one, stored apart, never in a statistic."""

    per_replica: int = 3
    tokens: int = 512
    time_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """The workloads of one block, each optional."""

    chains: ChainsSpec | None = None
    sessions: SessionsSpec | None = None
    generation: GenerationSpec | None = None
    concurrency: ConcurrencySpec | None = None
    warmup: WarmupSpec = WarmupSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksSpec:
    """Which output checks apply to this model. `answers = "none"` for models that cannot answer (random weights)."""

    answers: Literal["exact", "none"] = "exact"
    count_tolerance: int = 40
    """Largest |prompt tokens − nominal size| of the first request of a unit."""
    reserve_values: bool = True
    """Ask reserve values in late turns, so that the answer is not in the history."""
    style: Literal["marker", "prose"] = "marker"
    """How values are planted: `@value name = 123456` lines, or sentences a small instruct model understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """A whole experiment as declared."""

    name: str
    description: str
    engine: EngineSpec
    arms: tuple[Arm, ...]
    services: tuple[ServiceSpec, ...]
    factor: tuple[str, ...]
    """The dotted fields in which arms may differ (`args`, `env.NAME`, `services`, `reach`)."""
    order: tuple[str, ...]
    """Arm name per block position."""
    baseline: str
    """The arm that plays OFF in every comparison."""
    seed: int
    request: RequestSpec
    workloads: Workloads
    checks: ChecksSpec
    digest: str
    """SHA-256 of the canonical JSON of the whole declaration."""
    deadline_s: float | None = None

    def arm(self, name: str) -> Arm:
        """The arm of that name; KeyError where there is none."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    def service(self, name: str) -> ServiceSpec:
        """The service of that name; KeyError where there is none."""
        for service in self.services:
            if service.name == name:
                return service
        raise KeyError(name)
