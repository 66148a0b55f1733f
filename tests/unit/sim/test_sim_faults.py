"""Fault selectors and settings."""

import json

import pytest

from harness.sim.fault_kinds import FAULTS
from harness.sim.faults import Facts, FaultBook, FaultSpec
from harness.sim.settings import CacheSettings, ReplicaSettings, SettingsError, load


def hits(when, requests, kind="crlf"):
    book = FaultBook([FaultSpec(kind=kind, when=when)])
    return [i for i, facts in enumerate(requests) if kind in book.select(facts)]


PLAIN = [Facts(request_id=str(i)) for i in range(5)]
MIXED = [Facts(salt=s, text=f"ns-{s} text", request_id=f"r{i}") for i, s in enumerate("abab")]


def test_always_hits_every_request():
    assert hits("always", PLAIN) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("nth", "expected"), [(0, [0]), (3, [3]), ([1, 4], [1, 4])])
def test_nth_counts_from_zero(nth, expected):
    assert hits({"nth": nth}, PLAIN) == expected


def test_nth_counts_only_requests_that_satisfy_the_other_conditions():
    assert hits({"salt": "b", "nth": 1}, MIXED) == [3]


def test_a_namespace_is_found_in_the_salt_or_at_the_start_of_the_prompt():
    assert hits({"namespace": "ns-a"}, MIXED) == [0, 2]
    far = Facts(text="x" * 5_000 + "ns-a")
    assert hits({"namespace": "ns-a"}, [far]) == []


def test_a_request_can_be_named():
    assert hits({"request_id": "r2"}, MIXED) == [2]


def test_a_probability_picks_the_same_requests_in_every_run():
    many = [Facts()] * 400
    first, second = (hits({"probability": 0.25, "seed": 3}, many) for _ in range(2))
    assert first == second
    assert 60 < len(first) < 140
    assert hits({"probability": 0.25, "seed": 4}, many) != first


def test_selectors_of_other_scopes_do_not_advance():
    book = FaultBook([FaultSpec(kind="no_store", when={"nth": 0}), FaultSpec(kind="evict", when={"nth": 0})])
    book.select(Facts(), lambda spec: FAULTS[spec.kind].scope == "lookup")
    assert "no_store" in book.select(Facts(), lambda spec: FAULTS[spec.kind].scope == "store")


def problems(kind, data):
    with pytest.raises(SettingsError) as caught:
        load(kind, json.dumps(data))
    return caught.value.problems


def test_every_problem_is_named_at_once():
    found = "\n".join(problems(ReplicaSettings, {"block_size": 0, "colour": 1, "time": {"warp": 1}, "seed": "x"}))
    for path in ("block_size", "colour", "time", "seed"):
        assert path in found


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "nonsense"},
        {"kind": "leak_block", "tokens": "many"},
        {"kind": "leak_block", "where": "elsewhere"},
        {"kind": "leak_block", "colour": 1},
        {"kind": "leak_block", "when": {"nth": -1}},
        {"kind": "leak_block", "when": "sometimes"},
        {"kind": "load_failure", "force": 1},
        {"kind": "dead_cache"},
    ],
)
def test_a_wrong_fault_is_refused(fault):
    assert problems(ReplicaSettings, {"faults": [fault]})


def test_a_fault_of_a_replica_is_refused_by_the_cache_service():
    assert "not a fault of a cache" in problems(CacheSettings, {"faults": [{"kind": "crlf"}]})[0]


def test_a_cache_that_cannot_hold_one_request_is_refused():
    assert problems(ReplicaSettings, {"num_gpu_blocks": 10, "max_model_len": 1_000})


def test_negative_times_are_refused():
    assert problems(ReplicaSettings, {"time": {"decode_step": -1}})


def test_settings_come_from_a_file_too(tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"block_size": 16}')
    assert load(ReplicaSettings, str(path)).block_size == 16


def test_a_missing_file_is_a_settings_error(tmp_path):
    with pytest.raises(SettingsError):
        load(ReplicaSettings, str(tmp_path / "none.json"))


def test_a_preset_is_loaded_by_name():
    assert load(ReplicaSettings, '{"time": "paper"}').time.decode_step > 0.01


def test_an_unknown_preset_names_the_known_ones():
    assert "paper" in problems(ReplicaSettings, {"time": "papper"})[0]


def test_every_fault_can_be_switched_on_with_its_defaults():
    for name, kind in FAULTS.items():
        settings = ReplicaSettings if "replica" in kind.sides else CacheSettings
        spec = load(settings, json.dumps({"faults": [{"kind": name}]})).faults[0]
        assert {key: spec.get(key) for key in kind.parameters} == {k: p.default for k, p in kind.parameters.items()}
