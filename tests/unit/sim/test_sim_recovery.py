"""What a request hits and gets back, and how it is counted."""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.sim import recording, recovery
from harness.sim.blocks import Allocation, Block
from harness.sim.faults import ActiveFaults, Facts, FaultSpec
from harness.sim.replica_counters import CounterBoard, Counters
from harness.sim.replica_metrics import Gauges, ReplicaCollector, ReplicaExposition, cache_config
from harness.sim.tier import Lease, Loaded, LoadFailedError, NativeTier, StorePiece


class FakeJob(SimpleNamespace):
    @property
    def cached(self):
        return self.local + self.external


def job(size, *, chunks=0, faults=(), pages=()):
    subject = FakeJob(
        size=size,
        prompt=np.arange(size, dtype=np.int32),
        lease=Lease(1, chunks),
        faults=ActiveFaults([FaultSpec(**f) for f in faults]),
        allocation=Allocation([Block(i, content=np.array(c, dtype=np.int32)) for i, c in enumerate(pages)]),
        filled=len(pages),
        local=0,
        external=0,
        loadable=0,
    )
    subject.allocation.hit_tokens = sum(len(c) for c in pages)
    return subject


@pytest.mark.parametrize(
    ("size", "pages", "chunks", "expected"),
    [
        (2513, 0, 9, (0, 2304)),
        (2513, 2496, 9, (2496, 0)),
        (2513, 2016, 9, (2016, 288)),
        (2304, 0, 9, (0, 2303)),
        (2304, 2272, 9, (2272, 31)),
        (2513, 0, 0, (0, 0)),
    ],
)
def test_external_hits_are_what_the_chunks_hold_beyond_the_pages(size, pages, chunks, expected):
    subject = job(size, chunks=chunks)
    recovery.assign_hits(subject, pages=pages, chunk_size=256)
    assert (subject.local, subject.external) == expected


@pytest.mark.parametrize(("where", "expected"), [("local", (16, 0)), ("external", (0, 16))])
def test_a_leak_is_counted_where_it_is_configured(where, expected):
    subject = job(100, faults=[{"kind": "leak_block", "tokens": 16, "where": where}])
    recovery.assign_hits(subject, pages=0, chunk_size=None)
    assert (subject.local, subject.external) == expected


def test_a_leak_leaves_one_token_to_compute():
    subject = job(10, faults=[{"kind": "leak_block", "tokens": 1_000}])
    recovery.assign_hits(subject, pages=0, chunk_size=None)
    assert subject.local == 9


def test_recovered_content_is_pages_then_transfer_then_the_prompts_own_tail():
    subject = job(10, chunks=2, pages=[[70, 71]])
    recovery.assign_hits(subject, pages=2, chunk_size=4)
    loaded = Loaded(np.array([80, 81, 82, 83, 84, 85, 86, 87], dtype=np.int32))
    assert recovery.recover(subject, loaded, 4, tokenizer=None).tolist() == [70, 71, 82, 83, 84, 85, 86, 87, 8, 9]


def test_a_leaked_token_is_recovered_as_it_was_sent():
    subject = job(10, faults=[{"kind": "leak_block", "tokens": 4}], pages=[[70, 71]])
    recovery.assign_hits(subject, pages=2, chunk_size=None)
    assert recovery.recover(subject, None, 0, tokenizer=None).tolist() == [70, 71, 2, 3, 4, 5, 6, 7, 8, 9]


def counted(*, external, local_off, local=0, hits=0):
    counters = Counters()
    subject = job(100)
    subject.local, subject.external, subject.admitted_ns, subject.arrival_ns = local, hits, 0, 0
    recording.admitted(counters, subject, external=external, local_off=local_off)
    return counters


def test_external_queries_leave_local_hits_out_or_not_by_version():
    assert counted(external=True, local_off=True, local=64).external_queries == 36
    assert counted(external=True, local_off=False, local=64).external_queries == 100


def test_without_a_second_tier_external_counters_stay_zero():
    counters = counted(external=False, local_off=True, local=64)
    assert (counters.external_queries, counters.external_hits) == (0, 0)
    assert (counters.local_queries, counters.local_hits) == (100, 64)


def test_sources_add_up_to_the_prompt():
    counters = Counters()
    counters.first_token(100, 32, 48)
    assert counters.by_source == {"local_compute": 20, "local_cache_hit": 32, "external_kv_transfer": 48}
    assert counters.prompt_cached == 80


def exposition(board, **options):
    config = cache_config(block_size=32, num_gpu_blocks=100, offload_tokens=0)
    external = options.get("external", True)
    return ReplicaExposition(ReplicaCollector(board, "m", lambda: Gauges(running=2), config, external=external))


def test_metrics_carry_the_names_and_labels_of_the_real_engine():
    board = CounterBoard()
    board.now.admit(100, 64, 0, 0)
    text = exposition(board).text().decode()
    assert 'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0' in text
    assert 'vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 0.0' in text
    assert 'vllm:num_requests_running{engine="0",model_name="m"} 2.0' in text
    assert "# TYPE vllm:prefix_cache_queries_created gauge" in text
    assert 'block_size="32"' in text


def test_external_series_can_be_missing():
    assert "external_prefix_cache" not in exposition(CounterBoard(), external=False).text().decode()


def test_lagging_counters_show_the_past():
    board = CounterBoard(lag_s=60.0)
    board.now.admit(100, 0, 0, 0)
    board.changed()
    assert board.published().local_queries == 0
    assert board.now.local_queries == 100


def test_a_restart_zeroes_counters_and_moves_the_start_time():
    board = CounterBoard()
    shown = exposition(board)
    board.now.admit(100, 0, 0, 0)
    board.restart()
    shown.restarted(123.0)
    text = shown.text().decode()
    assert 'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 0.0' in text
    assert "process_start_time_seconds 123.0" in text


NONE = ActiveFaults([])


async def test_a_native_tier_finds_what_it_stored_and_isolates_salts():
    tier = NativeTier(model="m", block_size=4, capacity_tokens=40)
    tokens = np.arange(10, dtype=np.int32)
    handle = await tier.begin_store(StorePiece(tokens, tokens + 5, 0), Facts(salt="a"), NONE)
    await tier.finish_store(handle, 1.0)
    lease = await tier.lookup(tokens, Facts(salt="a"), NONE)
    assert (lease.chunks, (await tier.lookup(tokens, Facts(salt="b"), NONE)).chunks) == (2, 0)
    assert (await tier.load(lease, 1, NONE)).tokens.tolist() == [9, 10, 11, 12]


async def test_a_native_tier_makes_room_for_what_is_new():
    tier = NativeTier(model="m", block_size=4, capacity_tokens=8)
    for base in (0, 100):
        tokens = np.arange(base, base + 8, dtype=np.int32)
        await tier.finish_store(await tier.begin_store(StorePiece(tokens, tokens, 0), Facts(), NONE), 1.0)
    assert (await tier.lookup(np.arange(8, dtype=np.int32), Facts(), NONE)).chunks == 0
    assert (await tier.lookup(np.arange(100, 108, dtype=np.int32), Facts(), NONE)).chunks == 2


async def test_a_native_tier_that_lost_a_block_fails_the_load():
    tier = NativeTier(model="m", block_size=4, capacity_tokens=8)
    with pytest.raises(LoadFailedError):
        await tier.load(Lease(1, 1, tier._keys(np.arange(4, dtype=np.int32), "")), 0, NONE)
