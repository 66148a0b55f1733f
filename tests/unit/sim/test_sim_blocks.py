"""Rules of the paged prefix cache."""

import numpy as np

from harness.sim.blocks import BlockPool, chain_hashes, root_hash

SIZE = 4


def prompt(*tokens):
    return np.array(tokens, dtype=np.int32)


def run(pool, tokens, *, total=None, keep=False):
    """Take a prompt through the pool; its hit tokens and, if kept, its allocation."""
    hashes = chain_hashes(tokens, SIZE, root_hash(b""))
    allocation = pool.allocate(pool.match(hashes, len(tokens)), total or len(tokens))
    hits = allocation.hit_tokens
    for position, digest in enumerate(hashes):
        pool.fill(allocation, position, digest, tokens[position * SIZE : (position + 1) * SIZE])
    if keep:
        return hits, allocation
    pool.release(allocation)
    return hits


def test_a_repeated_prompt_hits_its_full_pages():
    pool = BlockPool(8, SIZE)
    tokens = prompt(*range(10))
    assert [run(pool, tokens), run(pool, tokens)] == [0, 8]


def test_the_last_token_is_always_computed():
    pool = BlockPool(8, SIZE)
    tokens = prompt(*range(8))
    run(pool, tokens)
    assert run(pool, tokens) == 4


def test_running_requests_keep_their_pages_from_eviction():
    pool = BlockPool(3, SIZE)
    run(pool, prompt(*range(8)), keep=True)
    assert pool.allocate([], 8) is None
    assert pool.allocate([], 4) is not None


def test_idle_pages_that_are_hit_are_not_counted_as_room():
    pool = BlockPool(3, SIZE)
    tokens = prompt(*range(9))
    run(pool, tokens)
    hits = pool.match(chain_hashes(tokens, SIZE, root_hash(b"")), 9)
    assert len(hits) == 2
    assert pool.allocate(hits, 16) is None
    assert pool.allocate(hits, 12) is not None


def test_the_tail_of_a_sequence_is_evicted_before_its_head():
    pool = BlockPool(3, SIZE)
    tokens = prompt(*range(12))
    run(pool, tokens)
    run(pool, prompt(90, 91, 92, 93))
    assert run(pool, tokens) == 8


def test_the_least_recently_freed_pages_go_first():
    pool = BlockPool(4, SIZE)
    old, new = prompt(1, 1, 1, 1, 9), prompt(2, 2, 2, 2, 9)
    run(pool, old)
    run(pool, new)
    run(pool, prompt(3, 3, 3, 3, 9, 9, 9, 9))
    assert run(pool, new) == 4
    assert run(pool, old) == 0


def test_a_hit_page_is_shared_and_freed_once_nobody_holds_it():
    pool = BlockPool(8, SIZE)
    tokens = prompt(*range(9))
    run(pool, tokens)
    _, first = run(pool, tokens, keep=True)
    _, second = run(pool, tokens, keep=True)
    assert first.blocks[0] is second.blocks[0]
    pool.release(first)
    assert pool.free_count < 8
    pool.release(second)
    assert pool.free_count == 8


def test_usage_counts_held_pages_only():
    pool = BlockPool(4, SIZE)
    _, held = run(pool, prompt(*range(8)), keep=True)
    assert pool.usage == 0.5
    pool.release(held)
    assert pool.usage == 0.0


def test_reset_is_refused_while_a_page_is_held():
    pool = BlockPool(4, SIZE)
    tokens = prompt(*range(9))
    _, held = run(pool, tokens, keep=True)
    assert pool.reset() is False
    pool.release(held)
    assert pool.reset() is True
    assert run(pool, tokens) == 0


def test_content_is_what_was_stored_and_not_what_is_asked():
    pool = BlockPool(4, SIZE)
    tokens = prompt(*range(5))
    digest = chain_hashes(tokens, SIZE, root_hash(b""))
    held = pool.allocate([], 5)
    pool.fill(held, 0, digest[0], prompt(7, 7, 7, 7))
    assert pool.match(digest, 5)[0].content.tolist() == [7, 7, 7, 7]


def test_evicting_some_free_pages_takes_the_oldest():
    pool = BlockPool(8, SIZE)
    run(pool, prompt(1, 1, 1, 1, 9))
    run(pool, prompt(2, 2, 2, 2, 9))
    assert pool.evict_free(1) == 1
    assert run(pool, prompt(1, 1, 1, 1, 9)) == 0
    assert run(pool, prompt(2, 2, 2, 2, 9)) == 4
