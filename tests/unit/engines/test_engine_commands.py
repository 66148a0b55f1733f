"""Command lines of every kind, from a declaration, without starting anything."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engines import argv, layout
from harness.engines.layout import Layout, lay_out
from harness.model.errors import ConfigError, EngineError
from harness.model.screening import (
    Arm,
    ChecksSpec,
    EngineSpec,
    ReplicaSpec,
    RequestSpec,
    Screening,
    ServiceSpec,
    Workloads,
)

OFF = Arm(name="off", reach="none")
CONNECTOR = (
    '{"kv_connector":"LMCacheMPConnector","kv_connector_extra_config":{"lmcache.mp.port":{service.pool.rpc_port}}}'
)
ON = Arm(name="on", reach="all", args=("--kv-transfer-config", CONNECTOR), services=("pool",))
POOL = ServiceSpec(name="pool", kind="lmcache", url="http://127.0.0.1:0")
A = ReplicaSpec(name="A", url="http://127.0.0.1:0")
B = ReplicaSpec(name="B", url="http://127.0.0.1:0")

ENGINE = EngineSpec(
    kind="vllm-cpu",
    model="tiny",
    tokenizer="models/tiny",
    model_dir="models/tiny",
    replicas=(A, B),
    block_size=32,
    chunk_size=256,
    options={"args": ["--enforce-eager"], "cpus": {"A": "0", "B": "1"}, "lmcache_args": ["--l1-size-gb", "2"]},
)


def declared(engine: EngineSpec, *services: ServiceSpec) -> Screening:
    return Screening(
        name="s",
        description="d",
        engine=engine,
        arms=(OFF, ON),
        services=services,
        factor=(),
        order=("off", "on"),
        baseline="off",
        seed=1,
        request=RequestSpec(),
        workloads=Workloads(),
        checks=ChecksSpec(),
        digest="0",
    )


def laid_out(engine: EngineSpec, arm: Arm, *services: ServiceSpec) -> Layout:
    return lay_out(declared(engine, *services), arm, project_root=Path("/project"), log_dir=Path("/logs"))


def value_after(words: tuple[str, ...] | None, flag: str) -> str:
    assert words is not None
    return words[words.index(flag) + 1]


def test_vllm_cpu_replica_is_pinned_and_bound_to_its_core() -> None:
    plan = laid_out(ENGINE, OFF).replicas[1]
    assert plan.argv is not None
    assert plan.argv[:3] == ("taskset", "-c", "1")
    assert plan.argv[3:6] == (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    assert plan.env["VLLM_CPU_OMP_THREADS_BIND"] == "1"
    assert plan.env["VLLM_TARGET_DEVICE"] == "cpu"
    assert plan.env["PYTHONHASHSEED"] == "0"


def test_both_replicas_name_the_model_the_same_way() -> None:
    plans = laid_out(ENGINE, OFF).replicas
    assert {value_after(plan.argv, "--model") for plan in plans} == {"models/tiny"}


def test_off_arm_has_neither_connector_nor_service() -> None:
    made = laid_out(ENGINE, OFF, POOL)
    assert made.services == ()
    assert all("--kv-transfer-config" not in (plan.argv or ()) for plan in made.replicas)


def test_on_arm_points_its_connector_at_the_port_the_pool_was_given() -> None:
    made = laid_out(ENGINE, ON, POOL)
    (pool,) = made.services
    connector = json.loads(value_after(made.replicas[0].argv, "--kv-transfer-config"))
    assert str(connector["kv_connector_extra_config"]["lmcache.mp.port"]) == value_after(pool.argv, "--port")
    assert value_after(pool.argv, "--http-port") == str(pool.address.port)
    assert value_after(pool.argv, "--http-host") == "127.0.0.1"
    assert value_after(pool.argv, "--chunk-size") == "256"
    assert value_after(pool.argv, "--l1-size-gb") == "2"


def test_ports_of_one_launch_are_all_different() -> None:
    made = laid_out(ENGINE, ON, POOL)
    ports = [plan.address.port for plan in made.all] + [int(value_after(made.services[0].argv, "--port"))]
    assert len(set(ports)) == len(ports)


def test_declared_port_is_kept() -> None:
    engine = replace(ENGINE, replicas=(replace(A, url="http://127.0.0.1:8101"), B))
    assert laid_out(engine, OFF).replicas[0].url == "http://127.0.0.1:8101"


def test_hybrid_model_gets_no_block_size() -> None:
    assert "--block-size" in (laid_out(ENGINE, OFF).replicas[0].argv or ())
    assert "--block-size" not in (laid_out(replace(ENGINE, hybrid=True), OFF).replicas[0].argv or ())


def test_gpu_replica_has_no_cpu_settings_but_its_own_devices() -> None:
    engine = replace(ENGINE, kind="vllm", options={}, replicas=(replace(A, env={"CUDA_VISIBLE_DEVICES": "0"}), B))
    plan = laid_out(engine, OFF).replicas[0]
    assert "VLLM_TARGET_DEVICE" not in plan.env
    assert plan.env["CUDA_VISIBLE_DEVICES"] == "0"
    assert plan.argv is not None
    assert plan.argv[0] == sys.executable


def test_environment_of_the_arm_wins_over_replica_and_engine() -> None:
    engine = replace(ENGINE, env={"X": "engine", "Y": "engine"}, replicas=(replace(A, env={"X": "replica"}), B))
    plan = laid_out(engine, replace(OFF, env={"X": "arm"})).replicas[0]
    assert (plan.env["X"], plan.env["Y"]) == ("arm", "engine")


def test_simulator_gets_block_and_chunk_size_of_the_declaration() -> None:
    engine = replace(
        ENGINE, kind="sim", options={"settings": {"block_size": 1, "seed": 3}, "cache_settings": {"capacity_chunks": 9}}
    )
    pool = replace(POOL, kind="sim-cache")
    arm = replace(ON, args=("--cache", "{service.pool.url}"))
    made = laid_out(engine, arm, pool)
    settings = json.loads(value_after(made.replicas[0].argv, "--settings"))
    assert settings == {"block_size": 32, "seed": 3, "external_queries_count": "n_minus_local"}
    assert value_after(made.replicas[0].argv, "--cache") == made.services[0].url
    assert json.loads(value_after(made.services[0].argv, "--settings")) == {"capacity_chunks": 9, "chunk_size": 256}


def test_sglang_and_llama_cpp_are_asked_for_metrics() -> None:
    sglang = laid_out(replace(ENGINE, kind="sglang", options={"args": ["--tp", "1"]}), OFF).replicas[0].argv or ()
    assert {"--enable-metrics", "--enable-cache-report", "--tp"} <= set(sglang)
    llama = (
        laid_out(replace(ENGINE, kind="llama-cpp", options={"server": "bin/llama-server"}), OFF).replicas[0].argv or ()
    )
    assert llama[0] == "bin/llama-server"
    assert {"--metrics", "--slots"} <= set(llama)


def test_explicit_command_line_replaces_the_builder_and_keeps_the_arms_arguments() -> None:
    engine = replace(ENGINE, replicas=(replace(A, argv=("serve", "--port", "{port}")), B))
    plan = laid_out(engine, replace(OFF, args=("--extra",))).replicas[0]
    assert plan.argv == ("serve", "--port", str(plan.address.port), "--extra")


def test_remote_replica_has_no_command_line() -> None:
    plan = laid_out(replace(ENGINE, kind="remote", options={}), OFF).replicas[0]
    assert (plan.argv, plan.template) == (None, None)


def test_command_service_without_a_command_is_an_error() -> None:
    with pytest.raises(ConfigError, match="needs argv or commands"):
        argv.service_command(ENGINE, replace(POOL, kind="command"))


def test_unknown_and_mistyped_options_are_reported_together() -> None:
    engine = replace(ENGINE, options={"arg": ["x"], "cpus": "0"})
    with pytest.raises(ConfigError) as caught:
        laid_out(engine, OFF)
    assert [issue.path for issue in caught.value.issues] == ["engine.options.cpus", "engine.options.arg"]


def test_interpreter_that_is_not_installed_is_a_missing_part() -> None:
    with pytest.raises(EngineError) as caught:
        laid_out(replace(ENGINE, options={"python": ".venv-none/bin/python"}), OFF)
    assert caught.value.phase == "missing_part"


def test_interpreter_of_a_virtual_environment_is_not_resolved_to_the_one_behind_it(tmp_path: Path) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    engine = replace(ENGINE, options={"python": "venv/bin/python"})
    assert layout.interpreter(engine, tmp_path) == tmp_path / "venv/bin/python"


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80", "http://"])
def test_url_that_is_no_http_base_is_an_issue(url: str) -> None:
    with pytest.raises(ConfigError, match=r"A\.url"):
        laid_out(replace(ENGINE, replicas=(replace(A, url=url),)), OFF)
