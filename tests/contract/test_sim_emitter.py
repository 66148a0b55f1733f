"""The emitter: exact times, own lateness, enough endpoints for other load generators."""

import json
from itertools import pairwise

import pytest
import sim_processes as sim


@pytest.fixture(scope="module")
def emitter(tmp_path_factory):
    stamps = tmp_path_factory.mktemp("emitter") / "stamps.jsonl"
    process = sim.spawn("emitter", "--port", 0, "--stamps", stamps).wait_ready()
    process.stamps = stamps
    yield process
    process.stop()


def emit(process, tokens, *, rate="500", ttft="5", **fields):
    request = {**sim.body("x"), "max_tokens": tokens, **fields}
    return process.post(
        "/v1/chat/completions", request, **{"x-emit-rate": rate, "x-emit-ttft-ms": ttft, "x-request-id": f"e{tokens}"}
    )


def test_it_emits_exactly_as_many_tokens_as_asked_for(emitter):
    chunks = sim.datas(emit(emitter, 20))
    contents = [
        c
        for c in chunks[:-1]
        if c["choices"] and "content" in c["choices"][0]["delta"] and "role" not in c["choices"][0]["delta"]
    ]
    assert len(contents) == 20
    assert contents[-1]["choices"][0]["finish_reason"] == "length"
    assert chunks[-2]["usage"]["completion_tokens"] == 20


def test_deadlines_are_evenly_spaced_from_arrival_on(emitter):
    emit(emitter, 30, rate="1000", ttft="20")
    rows = [json.loads(line) for line in emitter.stamps.read_text().splitlines()]
    due = [r["due_ns"] for r in rows if r["request_id"] == "e30" and r["due_ns"] is not None]
    assert due[0] == due[1]
    assert {b - a for a, b in pairwise(due[1:])} == {1_000_000}
    assert all(r["mono_ns"] >= r["due_ns"] for r in rows if r["due_ns"] is not None)


def test_it_reports_its_own_lateness(emitter):
    own = sim.datas(emit(emitter, 10))[-2]["sim"]["emitter"]
    assert own["events"] == 11
    assert 0 <= own["p50_late_ns"] <= own["p99_late_ns"] <= own["max_late_ns"]
    assert emitter.get("/emitter-report").json()["events"] >= 11


def test_a_report_can_be_reset(emitter):
    emit(emitter, 5)
    emitter.get("/emitter-report?reset=1")
    assert emitter.get("/emitter-report").json()["events"] == 0


def test_a_wrong_rate_is_a_400(emitter):
    assert emit(emitter, 5, rate="0").status_code == 400


def test_other_load_generators_find_what_they_look_for(emitter):
    assert emitter.get("/health").status_code == 200
    assert emitter.get("/v1/models").json()["data"]
    assert emitter.post("/tokenize", {"prompt": "some words"}).json()["count"] > 0
    assert "vllm:generation_tokens_total" in emitter.get("/metrics").text
    whole = emit(emitter, 3, stream=False, stream_options=None).json()
    assert whole["usage"]["completion_tokens"] == 3
