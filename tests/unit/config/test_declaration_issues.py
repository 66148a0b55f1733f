from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config import from_document, load, loads
from harness.model.errors import ConfigError, ExitCode, Issue

Document = dict[str, Any]
IssuesOf = Callable[[Document], dict[str, Issue]]


def test_everything_wrong_in_a_file_is_reported_at_once(document: Document, issues_of: IssuesOf) -> None:
    document["seed"] = "many"
    document["engine"]["block_size"] = 0
    document["arms"]["on"]["reach"] = "everywhere"
    document["workloads"]["chains"]["sizes"][1]["tokens"] = "4000"
    document["checks"] = {"stile": "marker"}
    assert set(issues_of(document)) == {
        "seed",
        "engine.block_size",
        "arms.on.reach",
        "workloads.chains.sizes[1].tokens",
        "checks.stile",
    }


def test_a_wrong_table_does_not_hide_what_is_wrong_between_others(document: Document, issues_of: IssuesOf) -> None:
    document["request"] = {"max_tokens": -1}
    document["order"] = ["off", "om", "on", "off"]
    found = issues_of(document)
    assert "request.max_tokens" in found
    assert "'on'" in found["order[1]"].message


def test_config_error_carries_the_exit_code_of_a_wrong_declaration(document: Document) -> None:
    del document["engine"]
    with pytest.raises(ConfigError) as caught:
        from_document(document, source="spoilt")
    assert caught.value.exit_code == ExitCode.DECLARATION
    assert str(caught.value).startswith("spoilt: 1 problem\n")


@pytest.mark.parametrize(
    ("place", "key", "meant"),
    [
        ((), "basline", "baseline"),
        (("engine",), "block_sise", "block_size"),
        (("engine", "options"), "setings", "settings"),
        (("arms", "on"), "service", "services"),
        (("workloads", "sessions"), "turn_token", "turn_tokens"),
        (("workloads", "chains", "sizes", 0), "lable", "label"),
        (("engine", "replicas", 1), "urll", "url"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(
    document: Document, issues_of: IssuesOf, place: tuple[str | int, ...], key: str, meant: str
) -> None:
    table: Any = document
    for part in place:
        table = table[part]
    table[key] = table.pop(meant, 1)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in (*place, key)).lstrip(".")
    found = issues_of(document)
    assert f"did you mean {meant!r}?" in found[path].message
    assert meant in str(found[path].allowed)


def test_a_string_is_no_number(document: Document, issues_of: IssuesOf) -> None:
    document["workloads"]["chains"]["chains"] = "2"
    issue = issues_of(document)["workloads.chains.chains"]
    assert issue.allowed == "an integer"


def test_a_whole_number_is_no_boolean(document: Document, issues_of: IssuesOf) -> None:
    document["request"]["salt"] = 1
    assert issues_of(document)["request.salt"].allowed == "true or false"


def test_an_order_that_is_no_palindrome_must_be_declared(document: Document, issues_of: IssuesOf) -> None:
    document["order"] = ["off", "on", "off", "on"]
    assert "palindrome" in issues_of(document)["order"].message
    document["order_kind"] = "pairs"
    assert from_document(document).order == ("off", "on", "off", "on")


@pytest.mark.parametrize("order", [["off", "on", "on", "off"] * 2, ["off", "on", "on", "off"] * 3])
def test_repeated_palindromes_are_accepted(document: Document, order: list[str]) -> None:
    document["order"] = order
    assert from_document(document).order == tuple(order)


def test_an_order_that_runs_an_arm_twice_in_a_pair_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["order"] = ["off", "off", "on", "on"]
    assert "every arm once" in issues_of(document)["order"].message


def test_an_arm_that_never_runs_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["arms"]["spare"] = {"reach": "none"}
    assert "arms.spare" in issues_of(document)


def test_arms_may_differ_only_in_the_declared_factor(document: Document, issues_of: IssuesOf) -> None:
    document["arms"]["on"]["env"] = {"LD_PRELOAD": "x"}
    issue = issues_of(document)["arms.on.env.LD_PRELOAD"]
    assert "'env.LD_PRELOAD' is not declared as a factor" in issue.message
    document["factor"].append("env.LD_PRELOAD")
    assert from_document(document).arm("on").env == {"LD_PRELOAD": "x"}


def test_a_factor_that_does_not_differ_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["factor"].append("env.HOME")
    assert "equal in all arms" in issues_of(document)["factor[3]"].message


def test_a_factor_that_is_no_field_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["factor"].append("speed")
    assert "no field of an arm" in issues_of(document)["factor[3]"].message


def test_the_baseline_alone_reaches_nothing(document: Document, issues_of: IssuesOf) -> None:
    document["baseline"] = "on"
    found = issues_of(document)
    assert {"arms.off.reach", "arms.on.reach"} <= set(found)


def test_an_aa_screening_of_a_sharing_arm_is_accepted(document: Document) -> None:
    document |= {"order": ["on"] * 4, "baseline": "on", "factor": []}
    assert from_document(document).order == ("on",) * 4


def test_an_aa_screening_needs_a_multiple_of_four_blocks(document: Document, issues_of: IssuesOf) -> None:
    document |= {"order": ["off"] * 6, "factor": []}
    assert "multiple of 4" in issues_of(document)["order"].message


def test_an_unknown_service_is_refused_with_a_suggestion(document: Document, issues_of: IssuesOf) -> None:
    document["arms"]["on"]["services"] = ["pol"]
    found = issues_of(document)
    assert "did you mean 'pool'?" in found["arms.on.services[0]"].message
    assert "no arm uses it" in found["services.pool"].message


def test_two_replicas_are_the_least(document: Document, issues_of: IssuesOf) -> None:
    document["engine"]["replicas"].pop()
    assert "engine.replicas" in issues_of(document)


def test_replicas_need_distinct_names_and_ports(document: Document, issues_of: IssuesOf) -> None:
    for replica in document["engine"]["replicas"]:
        replica |= {"name": "A", "url": "http://127.0.0.1:8101"}
    assert {"engine.replicas[1].name", "engine.replicas[1].url"} <= set(issues_of(document))


def test_port_zero_may_be_declared_twice(document: Document) -> None:
    assert [replica.url for replica in from_document(document).engine.replicas] == ["http://127.0.0.1:0"] * 2


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://127.0.0.1", "ftp://127.0.0.1:1", "http://127.0.0.1:1/v1"])
def test_a_url_must_be_a_base_url_with_a_port(document: Document, issues_of: IssuesOf, url: str) -> None:
    document["engine"]["replicas"][0]["url"] = url
    assert "engine.replicas[0].url" in issues_of(document)


def test_another_host_needs_commands(document: Document, issues_of: IssuesOf) -> None:
    replica = document["engine"]["replicas"][0]
    replica["url"] = "http://gpu-7.example:8000"
    assert "another host" in issues_of(document)["engine.replicas[0].url"].message
    replica["commands"] = {"start": ["ssh", "x", "up"], "stop": ["ssh", "x", "down"], "status": ["ssh", "x", "is-up"]}
    commands = from_document(document).engine.replicas[0].commands
    assert commands is not None
    assert commands.status == ("ssh", "x", "is-up")


def test_a_model_path_with_an_at_sign_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["engine"]["model"] = "org/model@main"
    assert "engine.model" in issues_of(document)


def test_a_chunk_that_is_no_multiple_of_the_block_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["engine"]["chunk_size"] = 250
    assert issues_of(document)["engine.chunk_size"].allowed == "such as 224"


def test_a_sharing_arm_needs_a_chunk_size(document: Document, issues_of: IssuesOf) -> None:
    del document["engine"]["chunk_size"]
    assert "engine.chunk_size" in issues_of(document)


def test_sizes_within_one_chunk_are_refused(document: Document, issues_of: IssuesOf) -> None:
    document["workloads"]["chains"]["sizes"][0]["tokens"] = 256
    document["workloads"]["warmup"]["tokens"] = 200
    assert {"workloads.chains.sizes[0].tokens", "workloads.warmup.tokens"} <= set(issues_of(document))


def test_labels_are_unique_in_a_workload(document: Document, issues_of: IssuesOf) -> None:
    document["workloads"]["chains"]["sizes"][1] |= {"label": "1k", "tokens": 1000}
    assert "workloads.chains.sizes[1].label" in issues_of(document)


def test_a_label_means_one_size_in_all_workloads(document: Document, issues_of: IssuesOf) -> None:
    document["workloads"]["sessions"]["sizes"][1]["tokens"] = 8192
    assert "8000 tokens" in issues_of(document)["workloads.sessions.sizes[1].tokens"].message


def test_only_the_simulator_has_a_time_scale() -> None:
    text = (Path(__file__).parents[3] / "blocks" / "vllm-cpu.toml").read_text(encoding="utf-8")
    spoilt = text.replace('label = "1k", tokens = 1000', 'label = "1k", tokens = 1000, time_scale = 0.5', 1)
    with pytest.raises(ConfigError) as caught:
        loads(spoilt.encode())
    assert [issue.path for issue in caught.value.issues] == ["workloads.chains.sizes[0].time_scale"]


def test_prompts_must_fit_the_declared_context(document: Document, issues_of: IssuesOf) -> None:
    document["engine"]["options"]["settings"]["max_model_len"] = 8500
    found = issues_of(document)
    assert set(found) == {"workloads.sessions.sizes[1].tokens"}
    assert found["workloads.sessions.sizes[1].tokens"].allowed == "at most 8500"


def test_a_context_declared_among_arguments_counts() -> None:
    text = (Path(__file__).parents[3] / "blocks" / "vllm-cpu.toml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        loads(text.replace('"16384"', '"4096"').encode())
    assert "workloads.chains.sizes[2].tokens" in {issue.path for issue in caught.value.issues}


def test_a_unit_must_fit_into_a_replicas_cache(document: Document, issues_of: IssuesOf) -> None:
    document["engine"]["options"]["settings"]["num_gpu_blocks"] = 200
    assert "workloads.chains.sizes[2].tokens" in issues_of(document)


def test_a_block_must_fit_into_the_pool_below_its_watermark(document: Document, issues_of: IssuesOf) -> None:
    document["engine"]["options"]["cache_settings"]["capacity_chunks"] = 100
    assert "engine.options.cache_settings.capacity_chunks" in issues_of(document)


def test_window_sessions_divide_over_the_replicas(document: Document, issues_of: IssuesOf) -> None:
    document["workloads"]["concurrency"] = {
        "size": {"label": "1k", "tokens": 1000},
        "windows": [2, 3],
        "placements": ["fixed"],
        "turns": 2,
        "turn_tokens": 300,
    }
    assert set(issues_of(document)) == {"workloads.concurrency.windows[1]"}


def test_a_schema_of_an_object_and_answers_as_an_array_exclude_each_other(
    document: Document, issues_of: IssuesOf
) -> None:
    document["request"] = {**document.get("request", {}), "response_format": "json_schema"}
    document["workloads"]["concurrency"] = {
        "size": {"label": "1k", "tokens": 1000},
        "windows": [2],
        "placements": ["fixed"],
        "turns": 2,
        "turn_tokens": 300,
        "answer_form": "array",
    }
    assert set(issues_of(document)) == {"request.response_format"}


def test_nothing_to_measure_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["workloads"] = {"warmup": {"per_replica": 1}}
    assert "workloads" in issues_of(document)


def test_more_least_than_most_tokens_is_refused(document: Document, issues_of: IssuesOf) -> None:
    document["request"] |= {"max_tokens": 8, "min_tokens": 9}
    assert "request.min_tokens" in issues_of(document)


def test_forced_text_after_the_answer_contradicts_exact_answers(document: Document, issues_of: IssuesOf) -> None:
    document["request"]["ignore_eos"] = True
    assert "request.ignore_eos" in issues_of(document)


def test_options_belong_to_the_engine_kind(document: Document, issues_of: IssuesOf) -> None:
    document["engine"]["options"]["python"] = "python3"
    assert issues_of(document)["engine.options.python"].allowed == "settings, cache_settings"


def test_cpus_name_replicas_or_services() -> None:
    text = (Path(__file__).parents[3] / "blocks" / "vllm-cpu.toml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        loads(text.replace('B = "1"', 'C = "1"').encode())
    assert [issue.path for issue in caught.value.issues] == ["engine.options.cpus.C"]


def test_broken_toml_is_one_issue_with_its_line() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        loads(b"schema = 1\nname = \n")


def test_an_unknown_name_suggests_a_declaration() -> None:
    with pytest.raises(ConfigError, match="did you mean 'quick'"):
        load("quik")


def test_the_name_must_be_the_files_name(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "blocks" / "smoke.toml").read_text(encoding="utf-8")
    path = tmp_path / "other.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="'smoke' is not the file's name"):
        load(path)
