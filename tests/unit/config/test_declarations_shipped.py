from __future__ import annotations

import hashlib
import re
from pathlib import Path

import orjson
import pytest

from harness.config import BLOCKS, available, from_json, load, to_json
from harness.config import schema as shape
from harness.model.errors import ConfigError

NAMES = [entry.name for entry in available()]


def test_the_declarations_of_the_issues_are_shipped() -> None:
    wanted = {"quick", "paper", "vllm-cpu", "vllm-cpu-smollm2", "vllm-cpu-ci", "aa", "smoke", "native"}
    assert wanted <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_declaration_loads_and_has_a_description(name: str) -> None:
    assert load(name).description == next(entry.description for entry in available() if entry.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_canonical_json_gives_the_same_screening_back(name: str) -> None:
    screening = load(name)
    assert from_json(to_json(screening)) == screening
    assert to_json(from_json(to_json(screening))) == to_json(screening)


def test_declarations_differ_in_their_digests() -> None:
    assert len({load(name).digest for name in NAMES}) == len(NAMES)


def test_an_altered_stored_declaration_is_refused() -> None:
    document = orjson.loads(to_json(load("quick")))
    document["engine"]["block_size"] = 64
    with pytest.raises(ConfigError, match="altered"):
        from_json(orjson.dumps(document))


def test_a_field_of_a_newer_version_is_named() -> None:
    document = orjson.loads(to_json(load("quick")))
    document["engine"]["voltage"] = 12
    with pytest.raises(ConfigError, match=r"engine\.voltage: is not known"):
        from_json(orjson.dumps(document))


def test_a_declaration_of_an_older_version_without_a_new_field_still_opens() -> None:
    document = orjson.loads(to_json(load("quick")))
    del document["checks"]["style"], document["digest"]
    digest = hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()
    stored = from_json(orjson.dumps({**document, "digest": digest}))
    assert (stored.checks.style, stored.digest) == ("marker", digest)


def test_paper_declares_what_the_paper_recorded() -> None:
    paper = load("paper")
    settings = paper.engine.options["settings"]
    assert (paper.engine.block_size, paper.engine.chunk_size) == (1568, 1568)
    assert (settings["num_gpu_blocks"], settings["max_model_len"]) == (1262, 1_010_000)
    assert (settings["max_num_batched_tokens"], settings["max_num_seqs"]) == (8192, 64)
    assert (paper.request.temperature, paper.request.seed, paper.request.max_tokens) == (0.0, 314159, 64)
    assert paper.request.thinking is False
    assert paper.engine.tokenizer == "fixtures/tokenizers/sim"


def test_native_and_shared_arms_differ_in_reach() -> None:
    reaches = {arm.name: arm.reach for arm in load("native").arms}
    assert reaches == {"off": "none", "native": "replica", "on": "all"}


def test_every_key_of_the_schema_is_documented() -> None:
    text = (BLOCKS.parent / "docs" / "declarations.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z_]+)`", text))
    tables = [value for value in vars(shape).values() if isinstance(value, type) and issubclass(value, shape.Table)]
    keys = {info.alias or name for table in tables for name, info in table.model_fields.items()}
    assert keys - documented == set()


def test_no_declaration_names_a_path_of_one_machine() -> None:
    for path in Path(BLOCKS).glob("*.toml"):
        assert "/home/" not in path.read_text(encoding="utf-8")
        assert "/work" not in path.read_text(encoding="utf-8")
