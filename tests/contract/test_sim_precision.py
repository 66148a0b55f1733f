"""The first token comes when the time model says, as the client sees it."""

import json
import socket
import time

import pytest
import sim_processes as sim

from harness.sim.settings import ReplicaSettings, load
from harness.sim.timing import predict_ttft

SETTINGS = {"time": {**sim.FAST, "first_token_constant": 0.02, "prefill_per_token": 2e-5, "decode_step": 0.005}}
PARAMS = load(ReplicaSettings, json.dumps(SETTINGS)).time


@pytest.fixture(scope="module")
def replica():
    with sim.fleet(on=False, each=[SETTINGS]) as (_, (process,)):
        yield process


def first_content_s(replica, request, scale):
    """Seconds from before connect to the first read that holds content."""
    payload = json.dumps(request).encode()
    host, port = replica.url.removeprefix("http://").split(":")
    start = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n"
        sock.sendall(head.encode() + f"x-kvabba-time-scale: {scale}\r\nconnection: close\r\n\r\n".encode() + payload)
        data = b""
        while b'"content":"{' not in data:
            data += sock.recv(65_536)
        took = time.monotonic() - start
        while sock.recv(65_536):
            pass
    return took


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_cold_and_a_local_first_token_come_when_predicted(replica, scale):
    excess = {"cold": [], "local": []}
    for round_ in range(5):
        request = sim.body(sim.text(100, f"p{scale}-{round_}"))
        n = replica.post("/tokenize", {"messages": request["messages"]}).json()["count"]
        for kind, local in (("cold", 0), ("local", (n - 1) // 32 * 32)):
            took = first_content_s(replica, request, scale)
            excess[kind].append(took - predict_ttft(PARAMS, n, local) * scale)
    # The machine may be busy: the best of five shows what the simulator itself adds.
    for late in excess.values():
        assert min(late) > 0, "never early"
        assert min(late) < 0.003


def test_tokens_follow_each_other_by_the_decode_step(replica):
    request = sim.body(sim.text(20), max_tokens=40, min_tokens=40, ignore_eos=True)
    stamps = []
    with replica.http.stream("POST", replica.url + "/v1/chat/completions", json=request) as response:
        for data in response.iter_raw():
            stamps += [time.monotonic()] * data.count(b'"content":" ')
    assert len(stamps) == 40
    assert (stamps[-1] - stamps[0]) / 39 == pytest.approx(0.005, rel=0.05)
