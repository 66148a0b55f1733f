"""Do all replicas name the same prefix the same way? (second half of case COR-2)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engines.fingerprint import ProcessFingerprint
from harness.model.errors import EngineError


def check_hashes(fingerprints: Sequence[ProcessFingerprint], *, shared: bool) -> None:
    """Refuse replicas whose hash seed or algorithm differ: they would never find one another's blocks.

    Args:
        fingerprints: of all processes; services are ignored.
        shared: True for an arm whose tier every replica reads. Only there an unset or random seed of vLLM is refused
            too: its first hash is then another one in every process.

    Raises:
        EngineError: phase `hash_mismatch`, naming each replica's setting.
    """
    replicas = [item for item in fingerprints if item.role == "replica"]
    seeds = {item.name: item.hash_seed for item in replicas if item.env is not None}
    algorithms = {item.name: item.hash_algorithm for item in replicas}
    if len(set(seeds.values())) > 1:
        raise _mismatch("hash seeds (PYTHONHASHSEED) differ", seeds)
    if len(set(algorithms.values())) > 1:
        raise _mismatch("prefix-cache hash algorithms differ", algorithms)
    vllm = any(item.kind in {"vllm", "vllm-cpu"} for item in replicas)
    if shared and vllm and any(seed in {None, "", "random"} for seed in seeds.values()):
        raise _mismatch("hash seeds are random in an arm that shares its cache", seeds)


def _mismatch(what: str, settings: dict[str, str | None]) -> EngineError:
    shown = ", ".join(f"{name}: {value if value is not None else 'unset'}" for name, value in sorted(settings.items()))
    return EngineError(f"{what} ({shown})", phase="hash_mismatch", hint="Declare PYTHONHASHSEED once, in engine.env.")
