"""Rules of the shared tier."""

import numpy as np

from harness.sim.chunk_store import ChunkKey, ChunkStore

TOKENS = np.zeros(4, dtype=np.int32)


def store(capacity=10, watermark=1.0, ratio=0.2):
    return ChunkStore(chunk_size=4, capacity=capacity, watermark=watermark, eviction_ratio=ratio)


def keys(count, salt="s", prefix=b"k"):
    return [ChunkKey("m", salt, prefix + bytes([i])) for i in range(count)]


def put(tier, names, *, commit=True):
    taken = tier.begin(names, [TOKENS] * len(names), first=0, root=names[0].digest)
    if commit:
        tier.commit(taken)
    return taken


def test_a_chunk_cannot_be_found_before_its_store_is_committed():
    tier, names = store(), keys(2)
    taken = put(tier, names, commit=False)
    assert (tier.lookup(names), tier.write_locked) == ([], 2)
    tier.commit(taken)
    assert (tier.lookup(names), tier.write_locked) == (names, 0)


def test_a_lookup_returns_the_contiguous_prefix_only():
    tier, names = store(), keys(3)
    tier.commit(tier.begin([names[0], names[2]], [TOKENS] * 2, first=0, root=b""))
    assert tier.lookup(names) == names[:1]


def test_a_lookup_counts_asked_and_found_tokens_by_salt():
    tier, names = store(), keys(3)
    put(tier, names[:2])
    tier.lookup(names)
    assert tier.counters.requested["s", "m"] == 12
    assert tier.counters.hit["s", "m"] == 8
    assert tier.counters.read["s"] == 2


def test_another_salt_finds_nothing():
    tier = store()
    put(tier, keys(2))
    assert tier.lookup(keys(2, salt="other")) == []


def test_read_locked_chunks_survive_eviction():
    tier, names = store(), keys(3)
    put(tier, names)
    tier.lookup(names[:1])
    assert tier.read_locked == 1
    assert tier.evict() == 2
    tier.release(names[:1])
    assert tier.evict() == 1


def test_retrieving_counts_chunks_loaded_by_worker():
    tier, names = store(), keys(2)
    put(tier, names)
    assert len(tier.retrieve(tier.lookup(names), "7")) == 2
    assert tier.counters.loaded["s", "m", "7"] == 2


def test_a_chunk_that_is_gone_cannot_be_retrieved():
    assert store().retrieve(keys(1), "7") is None


def test_a_full_store_fails_to_allocate_and_counts_it():
    tier = store(capacity=2)
    assert len(put(tier, keys(3))) == 2
    assert tier.counters.allocation_failures["m"] == 1


def test_crossing_the_watermark_evicts_the_least_recently_used_share():
    tier, names = store(capacity=10, watermark=0.8, ratio=0.5), keys(9)
    put(tier, names[:8])
    tier.release(tier.lookup(names[:1]))
    assert tier.counters.evicted == 0
    put(tier, names[8:])
    assert tier.counters.evicted == 4
    assert tier.lookup(names[:1]) == names[:1]
    assert tier.lookup(names[1:2]) == []


def test_storing_again_what_is_there_takes_nothing():
    tier, names = store(), keys(2)
    put(tier, names)
    assert put(tier, names) == []
    assert tier.counters.written["s"] == 2


def test_an_abandoned_store_leaves_nothing_behind():
    tier, names = store(), keys(2)
    tier.abandon(put(tier, names, commit=False))
    assert len(tier) == 0


def test_clearing_is_no_eviction():
    tier = store()
    put(tier, keys(3))
    assert tier.clear() == 3
    assert tier.counters.evicted == 0


def test_foreign_content_comes_from_the_same_place_of_another_namespace():
    tier = store()
    mine, other = keys(2), keys(2, prefix=b"x")
    put(tier, mine)
    tier.commit(tier.begin(other, [TOKENS + 1, TOKENS + 2], first=0, root=other[0].digest))
    assert tier.foreign(mine[1]).tolist() == [2, 2, 2, 2]


def test_without_another_namespace_nothing_foreign_comes():
    tier = store()
    put(tier, keys(2))
    assert tier.foreign(keys(2)[0]) is None
