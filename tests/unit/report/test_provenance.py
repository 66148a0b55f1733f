from dataclasses import replace

import pytest
from made import small
from synthetic import make_run, screening, with_block

from harness.report.provenance import arm_fields, block_facts, flatten, simulated, unvalidated


def with_fingerprint(kind, fingerprint):
    run = make_run(only=(1, 2))
    run = replace(run, screening=replace(run.screening, engine=replace(run.screening.engine, kind=kind)))
    return with_block(run, 1, lambda block: replace(block, manifest={**block.manifest, "fingerprints": fingerprint}))


@pytest.mark.parametrize(
    ("kind", "fingerprint", "expected"),
    [
        ("sim", {}, True),
        ("remote", {"A": {"version": "0.28.0 (simulated)"}}, True),
        ("remote", {"A": {"flags": [{"simulated": True}]}}, True),
        ("vllm", {"A": {"version": "0.28.0"}}, False),
        ("vllm", {"A": {"simulated": False}}, False),
    ],
)
def test_a_run_is_simulated_where_anything_says_so(kind, fingerprint, expected):
    assert simulated(with_fingerprint(kind, fingerprint)) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [({"options": {"unvalidated": True}}, True), ({"unvalidated": True}, True), ({"options": {}}, False), ({}, False)],
)
def test_a_run_started_without_validation_says_so(header, expected):
    assert unvalidated(replace(small()[0], header=header)) is expected


def test_arm_fields_that_differ_come_first():
    declared = screening()
    arms = (declared.arms[0], replace(declared.arms[1], args=("--kv", "x"), env={"SEED": "0"}))
    fields = arm_fields(replace(declared, arms=arms))
    assert [(field.path, field.values) for field in fields if field.differs] == [
        ("args", ("", "--kv x")),
        ("env.SEED", ("", "0")),
        ("reach", ("none", "all")),
    ]
    assert fields[-1].differs is False


def test_facts_equal_in_every_block_are_told_apart_from_those_that_differ():
    facts = {fact.path: fact for fact in block_facts(small()[0], "fingerprints", shown=3)}
    assert facts["A.model"].common == "m"
    assert (facts["A.pid"].common, facts["A.pid"].per_block) == (None, ("101", "102", "103"))


def test_flat_paths_name_nested_values():
    value = {"a": {"b": 1, "none": None}, "argv": ["x", "--y"], "gpus": [{"name": "g"}]}
    assert dict(flatten(value)) == {"a.b": "1", "argv": "x --y", "gpus[0].name": "g"}
