import math

import pytest

from harness.model.counting import Counter
from harness.wire.counter_names import KIND_OF, TABLES
from harness.wire.exposition import missing, parse, resolve

POOL = "lmcache_mp_event_bus_dropped_events_total 0.0\n"


def test_only_the_wanted_source_counts_as_computed() -> None:
    text = (
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 209\n'
        'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="external_kv_transfer"} 2304\n'
    )
    assert parse(text, "vllm", model="m").samples == {Counter.COMPUTED_TOKENS: 209}


def test_gauges_are_summed_over_engines_of_the_model() -> None:
    text = (
        'vllm:num_requests_running{engine="0",model_name="m"} 1\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 2\n'
        'vllm:num_requests_running{engine="0",model_name="o"} 4\nprocess_start_time_seconds 1.5e+09\n'
    )
    read = parse(text, "vllm", model="m")
    assert (read.running, read.waiting, read.process_start) == (3, None, 1.5e9)


def test_a_sample_that_is_no_number_is_missing() -> None:
    text = f'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {math.nan}\n'
    assert Counter.LOCAL_HITS not in parse(text, "vllm", model="m").samples


def test_cache_configuration_is_read_from_labels_that_may_be_absent() -> None:
    text = 'vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="None"} 1.0\n'
    config = parse(text, "vllm", model="m").cache_config
    assert config is not None
    assert (config.block_size, config.num_gpu_blocks) == (32, None)
    assert config.labels["engine"] == "0"


def test_pool_counters_are_summed_over_whatever_labels_a_version_has() -> None:
    text = POOL + (
        'lmcache_mp_l1_read_chunks_total{cache_salt="a"} 9\n'
        'lmcache_mp_l1_read_chunks_total{cache_salt="b",model="m"} 4\n'
    )
    assert parse(text, "lmcache").samples[Counter.POOL_READ_CHUNKS] == 13


def test_a_pool_counter_that_never_moved_is_an_assumed_zero() -> None:
    read = parse(POOL, "lmcache")
    assert read.samples[Counter.POOL_EVICTED_CHUNKS] == 0
    assert Counter.POOL_EVICTED_CHUNKS in read.assumed_zero


def test_nothing_is_assumed_of_a_server_that_does_not_look_like_a_pool() -> None:
    assert parse("process_start_time_seconds 1\n", "lmcache").samples == {}


def test_a_pool_counter_that_appears_later_is_read_under_names_resolved_before() -> None:
    names = resolve(POOL, "lmcache")
    later = parse(POOL + "lmcache_mp_num_chunks_loaded_total 9\n", "lmcache", names=names)
    assert later.samples[Counter.POOL_LOADED_CHUNKS] == 9


def test_a_pool_counter_that_was_seen_and_is_gone_is_missing() -> None:
    names = resolve(POOL + "lmcache_mp_num_chunks_loaded_total 9\n", "lmcache")
    assert Counter.POOL_LOADED_CHUNKS not in parse(POOL, "lmcache", names=names).samples


def test_lazily_created_counters_are_not_demanded_at_the_start() -> None:
    assert missing(resolve(POOL, "lmcache"), "lmcache", [Counter.POOL_LOADED_CHUNKS]) == ()


def test_allocation_failures_are_read_with_their_unit_in_the_name() -> None:
    text = POOL + 'lmcache_mp_l1_allocation_failure_chunks_total{during="l1_store",model_name="m"} 177\n'
    assert parse(text, "lmcache").samples[Counter.POOL_ALLOCATION_FAILURES] == 177


@pytest.mark.parametrize(
    ("kind", "text", "counter"),
    [
        ("sglang", 'sglang:cached_tokens_total{cache_source="device",model_name="m"} 7\n', Counter.CACHED_TOKENS),
        ("llama-cpp", "llamacpp:prompt_tokens_total 7\n", Counter.COMPUTED_TOKENS),
    ],
)
def test_other_engines_are_read_by_their_own_names(kind: str, text: str, counter: Counter) -> None:
    assert parse(text, KIND_OF[kind], model="m").samples[counter] == 7


def test_no_sample_name_means_two_counters() -> None:
    for table in TABLES.values():
        named = [(name, tuple(series.labels.items())) for series in table.counters.values() for name in series.names]
        assert len(named) == len(set(named))
