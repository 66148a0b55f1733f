"""Endpoints, refusals and parameters of a real replica process."""

import json
import signal
import socket
import threading
import time

import pytest
import sim_processes as sim


@pytest.fixture(scope="module")
def one():
    with sim.fleet(replicas=1, on=False) as (_, (replica,)):
        yield replica


def test_it_says_that_it_is_simulated(one):
    assert "simulated" in one.get("/version").json()["version"]


def test_it_lists_its_model_and_context(one):
    card = one.get("/v1/models").json()["data"][0]
    assert (card["id"], card["max_model_len"]) == ("m", 65_536)


def test_health_is_good(one):
    assert one.get("/health").status_code == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/tokenize", 405)])
def test_unknown_paths_and_methods_are_refused(one, method, path, status):
    assert one.http.request(method, one.url + path).status_code == status


def test_tokenize_counts_what_usage_counts(one):
    request = sim.body(ask="alpha_port")
    counted = one.post("/tokenize", {"model": "m", "messages": request["messages"]}).json()
    assert counted["count"] == len(counted["tokens"])
    assert sim.usage(one.post("/v1/chat/completions", request))["prompt_tokens"] == counted["count"]


def test_detokenize_undoes_tokenize(one):
    ids = one.post("/tokenize", {"prompt": "some text 中"}).json()["tokens"]
    assert one.post("/detokenize", {"tokens": ids}).json() == {"prompt": "some text 中"}


def test_an_unknown_model_is_a_404_in_the_engines_words(one):
    refused = one.post("/v1/chat/completions", {**sim.body(), "model": "other"})
    assert refused.status_code == 404
    assert refused.json()["error"]["type"] == "NotFoundError"


def test_a_malformed_body_is_a_400(one):
    assert one.http.post(one.url + "/v1/chat/completions", content=b"{").status_code == 400


def test_a_prompt_that_does_not_fit_is_a_400(one):
    refused = one.post("/v1/chat/completions", sim.body(max_tokens=65_530))
    assert refused.status_code == 400
    assert "maximum context length is 65536" in refused.json()["error"]["message"]


def test_a_wrong_time_scale_is_a_400(one):
    assert one.post("/v1/chat/completions", sim.body(), **{"x-kvabba-time-scale": "fast"}).status_code == 400


def test_a_request_without_streaming_gives_the_same_answer(one):
    request = {**sim.body(), "stream": False}
    del request["stream_options"]
    whole = one.post("/v1/chat/completions", request).json()
    assert json.loads(whole["choices"][0]["message"]["content"])["alpha_port"] == 938639
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens"] > 5


def test_a_completion_takes_token_ids_and_shares_the_cache_with_text(one):
    ids = one.post("/tokenize", {"prompt": sim.text(40, "ids")}).json()["tokens"]
    first = one.post("/v1/completions", {"model": "m", "prompt": ids, "max_tokens": 4}).json()
    second = one.post("/v1/completions", {"model": "m", "prompt": sim.text(40, "ids"), "max_tokens": 4}).json()
    assert first["usage"]["prompt_tokens"] == len(ids)
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == (len(ids) - 1) // 32 * 32
    assert first["choices"][0]["text"] == second["choices"][0]["text"]


@pytest.mark.parametrize("length", [1, 512])
def test_a_forced_length_is_met_exactly(one, length):
    response = one.post("/v1/chat/completions", sim.body(max_tokens=length, min_tokens=length, ignore_eos=True))
    assert sim.usage(response)["completion_tokens"] == length
    assert sim.datas(response)[-3]["choices"][0]["finish_reason"] == "length"


def test_without_include_usage_there_is_no_usage_chunk(one):
    request = sim.body()
    del request["stream_options"]
    assert all("usage" not in c for c in sim.datas(one.post("/v1/chat/completions", request))[:-1])


def test_token_ids_can_be_returned(one):
    chunks = sim.datas(one.post("/v1/chat/completions", sim.body(return_token_ids=True)))[:-1]
    count = sum(len(c["choices"][0].get("token_ids") or []) for c in chunks if c["choices"])
    assert len(chunks[0]["prompt_token_ids"]) == chunks[-1]["usage"]["prompt_tokens"]
    assert count == chunks[-1]["usage"]["completion_tokens"]


def test_a_forced_tool_is_called_in_deltas(one):
    tool = {"type": "function", "function": {"name": "report", "parameters": {}}}
    request = sim.body(tools=[tool], tool_choice={"type": "function", "function": {"name": "report"}})
    calls = [
        c["choices"][0]["delta"]["tool_calls"][0]
        for c in sim.datas(one.post("/v1/chat/completions", request))[:-1]
        if c["choices"] and "tool_calls" in c["choices"][0]["delta"]
    ]
    assert calls[0]["function"]["name"] == "report"
    assert json.loads("".join(c["function"]["arguments"] for c in calls))["alpha_port"] == 938639


def test_the_time_scale_of_a_request_is_told_and_applied(one):
    request = sim.body(sim.text(20, "scaled"), max_tokens=200, min_tokens=200, ignore_eos=True)
    took = {}
    for scale in ("1", "5"):
        start = time.monotonic()
        response = one.post("/v1/chat/completions", request, **{"x-kvabba-time-scale": scale})
        took[scale] = time.monotonic() - start
        assert sim.datas(response)[-2]["sim"]["time_scale"] == float(scale)
    assert took["1"] > 0.04
    assert took["5"] > 0.2


def test_generated_tokens_are_cached_and_read_back(one):
    first = one.post("/v1/chat/completions", sim.body(sim.text(30, "turns"), return_token_ids=True))
    chunks = sim.datas(first)[:-1]
    prompt = chunks[0]["prompt_token_ids"]
    said = [i for c in chunks if c["choices"] for i in c["choices"][0].get("token_ids") or []]
    grown = {"model": "m", "prompt": [*prompt, *said, *range(100, 160)], "max_tokens": 1}
    cached = one.post("/v1/completions", grown).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == (len(prompt) + len(said) - 1) // 32 * 32


def test_reset_forgets_and_says_so(one):
    one.post("/v1/chat/completions", sim.body(sim.text(30, "reset")))
    assert one.post("/reset_prefix_cache").json() == {"success": True}
    again = one.post("/v1/chat/completions", sim.body(sim.text(30, "reset")))
    assert sim.usage(again)["prompt_tokens_details"]["cached_tokens"] == 0


def raw_request(one, request, **headers):
    payload = json.dumps(request).encode()
    host, port = one.url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)), timeout=10)
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", f"content-length: {len(payload)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + payload)
    return sock


def test_a_client_that_hangs_up_frees_its_slot_and_pages(one):
    before = one.counters()["vllm:request_success_total:abort"]
    sock = raw_request(
        one, sim.body(max_tokens=5_000, min_tokens=5_000, ignore_eos=True), **{"x-kvabba-time-scale": "50"}
    )
    assert b"200 OK" in sock.recv(65_536)
    assert one.counters()["vllm:num_requests_running"] == 1
    assert one.post("/reset_prefix_cache").json() == {"success": False}
    sock.close()
    end = time.monotonic() + 5
    while time.monotonic() < end and one.counters()["vllm:request_success_total:abort"] == before:
        pass
    shown = one.counters()
    assert shown["vllm:request_success_total:abort"] == before + 1
    assert (shown["vllm:num_requests_running"], shown["vllm:kv_cache_usage_perc"]) == (0, 0)


def test_requests_on_one_connection_are_answered_in_order(one):
    answers = [sim.answer(one.post("/v1/chat/completions", sim.body(sim.text(10, f"kept{i}")))) for i in range(3)]
    assert all(json.loads(a)["alpha_port"] == 938639 for a in answers)


def test_concurrent_requests_share_steps():
    slow = {**sim.FAST, "decode_step": 0.004}
    with sim.fleet(on=False, each=[{"time": slow}]) as (_, (replica,)):
        request = sim.body(sim.text(10), max_tokens=50, min_tokens=50, ignore_eos=True)

        def call():
            replica.http.post(replica.url + "/v1/chat/completions", json=request)

        threads = [threading.Thread(target=call) for _ in range(4)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together = time.monotonic() - start
    assert 0.19 < together < 0.6, "four requests of 0.2 s each decode in one batch, not one after another"


def test_one_sequence_at_a_time_where_the_limit_is_one():
    slow = {**sim.FAST, "decode_step": 0.004}
    with sim.fleet(on=False, each=[{"time": slow, "max_num_seqs": 1}]) as (_, (replica,)):
        request = sim.body(sim.text(10), max_tokens=25, min_tokens=25, ignore_eos=True)
        threads = [
            threading.Thread(
                target=replica.http.post, args=(replica.url + "/v1/chat/completions",), kwargs={"json": request}
            )
            for _ in range(3)
        ]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - start > 0.28


def test_a_native_tier_serves_what_the_pages_have_lost():
    settings = {"num_gpu_blocks": 100, "max_model_len": 3_000}
    process = sim.replica(settings, "--native-offload-tokens", 20_000)
    try:
        process.wait_ready()
        first = sim.body(sim.text(100, "offload"))
        n = sim.usage(process.post("/v1/chat/completions", first))["prompt_tokens"]
        process.post("/v1/chat/completions", sim.body(sim.text(160, "pusher")))
        before = process.counters()
        again = process.post("/v1/chat/completions", first)
        after = process.counters()
        gained = [
            after[k] - before[k] for k in ("vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total")
        ]
        assert gained[1] > 0
        assert sum(gained) == (n - 1) // 32 * 32
        assert json.loads(sim.answer(again))["alpha_port"] == 938639
    finally:
        process.stop()


def test_stamps_tell_when_each_event_was_sent(tmp_path):
    path = tmp_path / "stamps.jsonl"
    process = sim.replica({}, "--stamps", path)
    try:
        process.wait_ready()
        response = process.post("/v1/chat/completions", sim.body(), **{"x-request-id": "mine"})
    finally:
        process.stop()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["event"] for row in rows] == list(range(len(sim.datas(response))))
    assert rows[0]["kind"] == "role"
    assert rows[-2]["kind"] == "usage"
    assert {row["request_id"] for row in rows} == {"mine"}
    assert [row["mono_ns"] for row in rows] == sorted(row["mono_ns"] for row in rows)
    assert all(row["mono_ns"] >= row["due_ns"] for row in rows if row["due_ns"] is not None)


def test_a_signal_ends_every_process_with_code_zero():
    with sim.fleet(replicas=1) as (service, (replica,)):
        assert (replica.stop(), service.stop()) == (0, 0)


def test_an_interrupt_ends_it_too():
    process = sim.replica().wait_ready()
    process.popen.send_signal(signal.SIGINT)
    assert process.popen.wait(timeout=10) == 0
    process.stop()


def test_a_taken_port_is_one_clear_line_and_its_own_exit_code(capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = sim.spawn("cache", "--port", port)
        assert process.popen.wait(timeout=10) == 3
        process.stop()
    assert capfd.readouterr().err.strip() == f"sim cache: cannot bind 127.0.0.1:{port}: address already in use"


def test_wrong_settings_are_all_named_and_exit_with_two(capfd):
    process = sim.spawn("cache", "--port", 0, "--settings", '{"chunk_size": 0, "colour": 1}')
    assert process.popen.wait(timeout=10) == 2
    process.stop()
    errors = capfd.readouterr().err
    assert "chunk_size" in errors
    assert "colour" in errors


def test_a_chunk_that_is_no_multiple_of_the_block_is_refused_at_start(capfd):
    service = sim.cache({"chunk_size": 48})
    try:
        process = sim.replica({}, "--cache", service.url)
        assert process.popen.wait(timeout=10) == 3
        process.stop()
    finally:
        service.stop()
    assert "not a multiple" in capfd.readouterr().err
