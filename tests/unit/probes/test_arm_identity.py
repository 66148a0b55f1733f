import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness import config
from harness.fixtures.reference import ReferenceTokenizer
from harness.model.errors import EngineError
from harness.model.screening import Screening
from harness.probes.identity import GIB, cache_flags, identify, pool_bytes, sharing_arms


@pytest.fixture
def quick() -> Screening:
    return config.load("quick")


def digest(screening: Screening, tmp_path: Path) -> str:
    return identify(screening, screening.arm("on"), root=tmp_path, log_dir=tmp_path).digest


def test_ports_do_not_change_the_fingerprint(quick: Screening, tmp_path: Path) -> None:
    assert digest(quick, tmp_path) == digest(quick, tmp_path)


def test_workloads_and_name_do_not_change_it(quick: Screening, tmp_path: Path) -> None:
    assert digest(replace(quick, name="other", seed=1), tmp_path) == digest(quick, tmp_path)


def test_a_flag_of_the_engine_changes_it(quick: Screening, tmp_path: Path) -> None:
    engine = replace(quick.engine, options={**quick.engine.options, "cache_settings": {"capacity_chunks": 9}})
    assert digest(replace(quick, engine=engine), tmp_path) != digest(quick, tmp_path)


def test_an_inherited_variable_that_matters_changes_it(quick: Screening, tmp_path: Path, monkeypatch) -> None:
    before = digest(quick, tmp_path)
    monkeypatch.setenv("LMCACHE_CHUNK", "1")
    assert digest(quick, tmp_path) != before


def test_another_model_file_changes_it(quick: Screening, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"12")
    engine = replace(quick.engine, model_dir="model")
    before = digest(replace(quick, engine=engine), tmp_path)
    (model / "weights").write_bytes(b"123")
    assert digest(replace(quick, engine=engine), tmp_path) != before


def test_only_arms_that_share_and_run_are_validated(quick: Screening) -> None:
    assert [arm.name for arm in sharing_arms(quick)] == ["on"]
    assert sharing_arms(replace(quick, order=("off", "off", "off", "off"))) == ()


def test_a_missing_interpreter_is_said_before_anything_starts(tmp_path: Path) -> None:
    screening = config.load("vllm-cpu")
    with pytest.raises(EngineError, match="does not exist"):
        identify(screening, screening.arm("on"), root=tmp_path, log_dir=tmp_path)


def test_the_pool_of_the_declaration_is_in_gib() -> None:
    assert pool_bytes(("lmcache", "server", "--l1-size-gb", "2", "--x")) == 2 * GIB
    assert pool_bytes(("--l1-size-gb=0.5",)) == GIB // 2
    assert pool_bytes(("--chunk-size", "256")) is None


def test_the_allocators_flags_are_those_of_the_cache_service(quick: Screening, tmp_path: Path) -> None:
    flags = cache_flags(identify(quick, quick.arm("on"), root=tmp_path, log_dir=tmp_path))
    assert "cache" in flags
    assert "replica" not in flags


def test_building_fixtures_leaves_the_environment_of_later_engines_alone() -> None:
    before = dict(os.environ)
    ReferenceTokenizer(Path(__file__).parents[3] / "fixtures/tokenizers/sim")
    assert dict(os.environ) == before
