"""Each fault has its visible consequence, on real processes."""

import json
import os
import time

import httpx
import psutil
import pytest
import sim_processes as sim

PER_REQUEST = [
    {"kind": "leak_block", "tokens": 16, "when": {"salt": "leak-local"}},
    {"kind": "leak_block", "tokens": 16, "where": "external", "when": {"salt": "leak-external"}},
    {"kind": "ignore_salt", "where": "both", "when": {"salt": "unsalted"}},
    {"kind": "corrupt_transfer", "when": {"salt": "corrupt"}},
    {"kind": "foreign_transfer", "when": {"salt": "foreign"}},
    {"kind": "gibberish_transfer", "when": {"salt": "gibberish"}},
    {"kind": "shortfall", "chunks": 2, "when": {"salt": "short"}},
    {"kind": "no_store", "when": {"salt": "unstored"}},
    {"kind": "evict", "when": {"salt": "evicted"}},
    {"kind": "wrong_model_answer", "when": {"salt": "wrong"}},
    {"kind": "numeric_drift", "when": {"salt": "drift"}},
    {"kind": "preempt", "when": {"salt": "preempt"}},
    {"kind": "slow_headers", "delay_s": 0.3, "when": {"salt": "slow"}},
    {"kind": "drop_connection", "when": {"salt": "dropped"}},
    {"kind": "drop_connection", "after": 3, "when": {"salt": "torn"}},
    {"kind": "short_stream", "mode": "clean", "when": {"salt": "stream-clean"}},
    {"kind": "short_stream", "mode": "cut", "when": {"salt": "stream-cut"}},
    {"kind": "error_event", "after": 0, "when": {"salt": "error"}},
    {"kind": "role_early", "when": {"salt": "early"}},
    {"kind": "restart", "when": {"salt": "restart"}},
]


@pytest.fixture(scope="module")
def pair():
    with sim.fleet(settings={"faults": PER_REQUEST}) as (service, replicas):
        yield service, replicas


def ask(replica, salt, prompt=None, **fields):
    return replica.post("/v1/chat/completions", sim.body(prompt, cache_salt=salt, **fields))


def hits(replica, salt, prompt=None):
    """(local, external) hits of one request."""
    before = replica.counters()
    ask(replica, salt, prompt)
    after = replica.counters()
    names = ("vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total")
    return tuple(after[name] - before[name] for name in names)


def values(response):
    return json.loads(sim.answer(response))


@pytest.mark.parametrize(("salt", "expected"), [("leak-local", (16, 0)), ("leak-external", (0, 16))])
def test_a_leak_shows_as_hits_of_a_cold_request(pair, salt, expected):
    assert hits(pair[1][0], salt, sim.text(name=salt)) == expected


def test_a_replica_that_ignores_salts_hits_across_them(pair):
    prompt = sim.text(name="unsalted")
    ask(pair[1][0], "unsalted-1", prompt)
    assert hits(pair[1][0], "unsalted-2", prompt)[0] > 0


def cross(pair, salt, prompt=None):
    """Cold on the first replica, then the response of the second."""
    ask(pair[1][0], salt, prompt)
    sim.drain(pair[0])
    return ask(pair[1][1], salt, prompt)


def test_a_corrupted_transfer_changes_the_answer_of_the_receiver(pair):
    service, (sender, receiver) = pair
    prompt = sim.text(name="corrupt")
    assert values(ask(sender, "corrupt", prompt))["alpha_port"] == 938639
    sim.drain(service)
    wrong = values(ask(receiver, "corrupt", prompt))
    assert wrong["alpha_port"] != 938639
    assert set(wrong) == {"alpha_port", "beta_limit"}
    assert values(ask(receiver, "corrupt", prompt)) == wrong, "the corrupted pages stay in the receiver's cache"
    assert values(ask(sender, "corrupt", prompt))["alpha_port"] == 938639


def test_a_foreign_transfer_answers_with_another_namespaces_values(pair):
    other = sim.text(name="other").replace("938639", "555555")
    ask(pair[1][0], "somebody-else", other)
    assert values(cross(pair, "foreign"))["alpha_port"] == 555555


def test_a_gibberish_transfer_loses_the_values(pair):
    assert values(cross(pair, "gibberish"))["alpha_port"] is None


def test_a_shortfall_hits_fewer_chunks_than_were_stored(pair):
    n = sim.usage(ask(pair[1][0], "short"))["prompt_tokens"]
    sim.drain(pair[0])
    assert hits(pair[1][1], "short") == (0, n // 256 * 256 - 512)


def test_nothing_is_stored_where_storing_is_off(pair):
    assert sim.usage(cross(pair, "unstored"))["prompt_tokens_details"]["cached_tokens"] == 0


def test_evicted_pages_are_recomputed(pair):
    ask(pair[1][0], "evicted")
    assert hits(pair[1][0], "evicted")[0] == 0


def test_a_wrong_model_is_wrong_when_cold(pair):
    assert values(ask(pair[1][0], "wrong"))["alpha_port"] == 938640


def test_drift_is_right_when_cold_and_wrong_on_local_reuse(pair):
    answers = [values(ask(pair[1][0], "drift"))["alpha_port"] for _ in range(2)]
    assert answers == [938639, 938640]


def test_a_preemption_is_counted(pair):
    before = pair[1][0].counters()["vllm:num_preemptions_total"]
    ask(pair[1][0], "preempt")
    assert pair[1][0].counters()["vllm:num_preemptions_total"] == before + 1


def test_headers_can_be_late(pair):
    start = time.monotonic()
    with pair[1][0].http.stream("POST", pair[1][0].url + "/v1/chat/completions", json=sim.body(cache_salt="slow")):
        assert time.monotonic() - start > 0.3


@pytest.mark.parametrize("salt", ["dropped", "torn", "stream-cut"])
def test_a_broken_connection_is_an_error_at_the_client(pair, salt):
    with pytest.raises(httpx.TransportError):
        ask(pair[1][0], salt)


def test_a_stream_can_end_cleanly_and_too_soon(pair):
    chunks = sim.datas(ask(pair[1][0], "stream-clean"))
    assert "[DONE]" not in chunks
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks)


def test_an_error_object_can_come_under_a_good_status(pair):
    response = ask(pair[1][0], "error")
    assert response.status_code == 200
    assert [("error" in c) if isinstance(c, dict) else c for c in sim.datas(response)] == [True, "[DONE]"]


def test_the_role_chunk_can_come_before_the_prefill(pair):
    request = sim.body(cache_salt="early")
    headers = {"x-kvabba-time-scale": "200"}
    with pair[1][0].http.stream(
        "POST", pair[1][0].url + "/v1/chat/completions", json=request, headers=headers
    ) as stream:
        reads = stream.iter_raw()
        first = next(reads)
        start = time.monotonic()
        next(reads)
    assert b'"role"' in first
    assert time.monotonic() - start > 0.1


def test_a_restart_zeroes_counters_and_moves_the_start_time(pair):
    before = pair[1][0].counters()
    ask(pair[1][0], "restart")
    after = pair[1][0].counters()
    assert after["vllm:prefix_cache_queries_total"] < before["vllm:prefix_cache_queries_total"]
    assert after["process_start_time_seconds"] > before["process_start_time_seconds"]


def test_a_load_failure_looks_as_captured_and_kills_the_engine():
    faults = [{"kind": "load_failure", "when": {"nth": 0}}]
    with sim.fleet(each=[{}, {"faults": faults}]) as (service, (sender, receiver)):
        n = sim.usage(ask(sender, "s"))["prompt_tokens"]
        sim.drain(service)
        before = receiver.counters()
        response = ask(receiver, "s")
        after = receiver.counters()
        assert response.status_code == 200
        kinds = [c if c == "[DONE]" else ("choices" in c, bool(c["choices"])) for c in sim.datas(response)]
        assert kinds == [(True, True), (True, False), "[DONE]"]
        told = sim.usage(response)
        assert (told["prompt_tokens"], told["completion_tokens"]) == (n, 0)
        assert told["prompt_tokens_details"]["cached_tokens"] == 0
        gained = {k: after[k] - before[k] for k in after if k.startswith("vllm:")}
        assert gained["vllm:external_prefix_cache_hits_total"] == n // 256 * 256
        assert gained["vllm:prompt_tokens_total"] == 0
        assert gained["vllm:request_prompt_tokens_count"] == 1
        assert receiver.get("/health").status_code == 503
        assert ask(receiver, "s").status_code == 500


def test_after_a_load_failure_the_process_may_be_gone():
    faults = [{"kind": "load_failure", "force": True, "then": "exit"}]
    with sim.fleet(on=False, each=[{"faults": faults}]) as (_, (replica,)):
        assert sim.datas(ask(replica, "s"))[-1] == "[DONE]"
        assert replica.popen.wait(timeout=10) == 1


def test_a_cache_that_dies_at_a_retrieve_fails_the_load():
    dead = {"faults": [{"kind": "dead_cache", "when": {"nth": 0}}]}
    with sim.fleet(cache_settings=dead) as (service, (sender, receiver)):
        ask(sender, "s")
        sim.drain(service)
        response = ask(receiver, "s")
        assert sim.usage(response)["completion_tokens"] == 0
        assert service.popen.wait(timeout=10) == 1
        assert receiver.get("/health").status_code == 503


def test_a_cache_that_hangs_costs_its_timeout_and_then_nothing():
    hung = {"faults": [{"kind": "dead_cache", "mode": "hang", "at": "lookup", "when": {"nth": 0}}]}
    settings = {"mq_timeout_s": 0.5, "heartbeat_s": 30.0}
    with sim.fleet(replicas=1, settings=settings, cache_settings=hung) as (_, (replica,)):
        took = []
        for name in ("first", "second"):
            start = time.monotonic()
            assert values(ask(replica, "s", sim.text(name=name)))["alpha_port"] == 938639
            took.append(time.monotonic() - start)
        assert took[0] > 0.5 > took[1]


def test_a_failed_load_can_be_recomputed_instead():
    dead = {"faults": [{"kind": "dead_cache", "when": {"nth": 0}}]}
    settings = {"on_load_failure": "recompute", "mq_timeout_s": 0.5}
    with sim.fleet(settings=settings, cache_settings=dead) as (service, (sender, receiver)):
        ask(sender, "s")
        sim.drain(service)
        response = ask(receiver, "s")
        assert values(response)["alpha_port"] == 938639
        assert sim.usage(response)["prompt_tokens_details"]["cached_tokens"] == 0


def test_transfer_faults_can_sit_in_the_cache_service():
    faults = [
        {"kind": "corrupt_transfer", "when": {"salt": "corrupt"}},
        {"kind": "shortfall", "chunks": 1, "when": {"salt": "short"}},
        {"kind": "no_store", "when": {"salt": "unstored"}},
        {"kind": "evict", "when": {"salt": "evicted", "nth": 1}},
    ]
    with sim.fleet(cache_settings={"faults": faults}) as pair:
        assert values(cross(pair, "corrupt"))["alpha_port"] != 938639
        n = sim.usage(cross(pair, "short"))["prompt_tokens"]
        assert sim.usage(ask(pair[1][1], "short2"))["prompt_tokens_details"]["cached_tokens"] == 0
        assert sim.usage(cross(pair, "unstored"))["prompt_tokens_details"]["cached_tokens"] == 0
        cached = sim.usage(cross(pair, "short", sim.text(name="again")))["prompt_tokens_details"]["cached_tokens"]
        assert 0 < cached < n // 256 * 256
        assert sim.usage(cross(pair, "evicted"))["prompt_tokens_details"]["cached_tokens"] == 0
        assert pair[0].counters()["lmcache_mp_l1_evicted_chunks_total"] > 0


def test_a_tier_that_ignores_salts_serves_across_them():
    with sim.fleet(cache_settings={"faults": [{"kind": "ignore_salt"}]}) as (service, (sender, receiver)):
        ask(sender, "one")
        sim.drain(service)
        assert sim.usage(ask(receiver, "other"))["prompt_tokens_details"]["cached_tokens"] > 0
        assert sim.usage(ask(sender, "third"))["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_pool_that_is_too_small_evicts_and_fails_to_allocate_without_any_other_sign():
    small = {"capacity_chunks": 6, "watermark": 0.8}
    with sim.fleet(replicas=1, cache_settings=small) as (service, (replica,)):
        ask(replica, "s")
        sim.drain(service)
        shown = service.counters()
        assert shown["lmcache_mp_l1_allocation_failure_chunks_total"] > 0
        assert shown["lmcache_mp_l1_evicted_chunks_total"] > 0


def test_counters_can_lag_behind():
    faults = [{"kind": "counter_lag", "delay_s": 0.6}]
    with sim.fleet(on=False, each=[{"faults": faults}]) as (_, (replica,)):
        ask(replica, "s")
        assert replica.counters()["vllm:prefix_cache_queries_total"] == 0
        end = time.monotonic() + 5
        while time.monotonic() < end and replica.counters()["vllm:prefix_cache_queries_total"] == 0:
            pass
        assert replica.counters()["vllm:prefix_cache_queries_total"] > 0


@pytest.mark.parametrize("mode", ["health_503", "no_listen"])
def test_a_slow_start_is_visible_from_outside(mode):
    start = time.monotonic()
    process = sim.replica({"faults": [{"kind": "slow_start", "delay_s": 0.5, "mode": mode}]}).wait_ready()
    try:
        if mode == "no_listen":
            assert time.monotonic() - start > 0.5
        else:
            assert process.get("/health").status_code == 503
            end = time.monotonic() + 5
            while time.monotonic() < end and process.get("/health").status_code == 503:
                pass
        assert process.get("/health").status_code == 200
    finally:
        process.stop()


def test_a_forked_child_outlives_its_parent_and_ignores_sigterm():
    process = sim.replica({"faults": [{"kind": "fork_child", "life_s": 20.0}]}).wait_ready()
    child = psutil.Process(process.popen.pid).children()[0]
    try:
        assert os.getsid(child.pid) == child.pid
        assert process.stop() == 0
        child.terminate()
        assert child.is_running()
        assert child.status() != psutil.STATUS_ZOMBIE
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("mode", "status", "text"),
    [
        ("true_noop", 200, '{"success":true}'),
        ("false", 200, '{"success":false}'),
        ("empty", 200, ""),
        ("404", 404, None),
    ],
)
def test_a_reset_can_lie(mode, status, text):
    with sim.fleet(on=False, each=[{"faults": [{"kind": "reset_lies", "mode": mode}]}]) as (_, (replica,)):
        ask(replica, "s")
        response = replica.post("/reset_prefix_cache")
        assert response.status_code == status
        assert text is None or response.text == text
        assert sim.usage(ask(replica, "s"))["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize(
    ("mode", "text"), [("empty", ""), ("html", "<html>"), ("missing_external", "vllm:prefix_cache")]
)
def test_metrics_can_be_useless(mode, text):
    with sim.fleet(on=False, each=[{"faults": [{"kind": "empty_metrics", "mode": mode}]}]) as (_, (replica,)):
        shown = replica.get("/metrics").text
        assert text in shown
        assert "external_prefix_cache" not in shown


def test_warm_up_requests_are_not_seen_by_selectors():
    settings = {"warmup_requests": 2, "faults": [{"kind": "leak_block", "when": {"nth": 0}}]}
    with sim.fleet(on=False, each=[settings]) as (_, (replica,)):
        cached = []
        for name in ("w1", "w2", "first", "second"):
            response = ask(replica, "s", sim.text(name=name))
            cached.append(sim.usage(response)["prompt_tokens_details"]["cached_tokens"])
        assert cached == [0, 0, 16, 0]
