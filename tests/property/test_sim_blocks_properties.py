"""The paged cache against a model that scans lists."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.sim.blocks import BlockPool, chain_hashes, root_hash

SIZE, PAGES = 4, 5


class ScanningModel:
    """The same rules by brute force: pages in order of their last release, found by scanning."""

    def __init__(self):
        self.queue = [{"id": i, "content": None} for i in range(PAGES)]
        self.held = {}

    def _find(self, prefix):
        pages = [p for group in self.held.values() for p in group] + self.queue
        same = [p for p in pages if p["content"] == prefix]
        return min(same, key=lambda p: p["filled"]) if same else None

    def start(self, key, salt, tokens, total, clock):
        limit = (len(tokens) - 1) // SIZE
        hits = []
        for i in range(limit):
            page = self._find((salt, tuple(tokens[: (i + 1) * SIZE])))
            if page is None:
                break
            hits.append(page)
        fresh = -(-total // SIZE) - len(hits)
        free = [p for p in self.queue if p not in hits]
        if fresh > len(free):
            return None
        taken = free[:fresh]
        self.queue = [p for p in self.queue if p not in hits and p not in taken]
        for page in taken:
            page["content"] = None
        self.held[key] = hits + taken
        for i, page in enumerate(self.held[key][: len(tokens) // SIZE]):
            if page["content"] is None:
                page["content"], page["filled"] = (salt, tuple(tokens[: (i + 1) * SIZE])), next(clock)
        return len(hits) * SIZE

    def stop(self, key):
        pages = self.held.pop(key)
        still = [p for group in self.held.values() for p in group]
        for page in reversed(pages):
            if page not in still and page not in self.queue:
                self.queue.append(page)


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=14)
starts = st.tuples(st.just("start"), st.sampled_from(["", "a"]), prompts, st.integers(0, 6))
stops = st.tuples(st.just("stop"), st.integers(0, 5))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(starts, stops), max_size=30))
def test_hits_and_refusals_agree_with_a_brute_force_model(operations):
    pool, model, running, clock = BlockPool(PAGES, SIZE), ScanningModel(), {}, iter(range(10_000))
    for key, operation in enumerate(operations):
        if operation[0] == "stop":
            victim = list(running)[operation[1] % len(running)] if running else None
            if victim is not None:
                pool.release(running.pop(victim))
                model.stop(victim)
            continue
        _, salt, prompt, extra = operation
        tokens = np.array(prompt, dtype=np.int32)
        hashes = chain_hashes(tokens, SIZE, root_hash(salt.encode()))
        allocation = pool.allocate(pool.match(hashes, len(tokens)), len(tokens) + extra)
        expected = model.start(key, salt, prompt, len(prompt) + extra, clock)
        assert (None if allocation is None else allocation.hit_tokens) == expected
        if allocation is not None:
            running[key] = allocation
            for position, digest in enumerate(hashes):
                pool.fill(allocation, position, digest, tokens[position * SIZE : (position + 1) * SIZE])
        assert pool.free_count == len(model.queue)


@given(prompts, prompts)
def test_two_prompts_share_exactly_the_hashes_of_their_common_full_pages(a, b):
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    first, second = (chain_hashes(np.array(p, dtype=np.int32), SIZE, root_hash(b"")) for p in (a, b))
    same = sum(x == y for x, y in zip(first, second, strict=False))
    assert same == common // SIZE


@given(st.lists(st.integers(0, 4_095), min_size=4, max_size=40), st.text(max_size=8), st.text(max_size=8))
def test_a_salt_isolates_every_page_after_the_first(tokens, one, other):
    array = np.array(tokens, dtype=np.int32)
    a, b = (chain_hashes(array, SIZE, root_hash(salt.encode())) for salt in (one, other))
    assert (set(a) & set(b) == set()) is (one != other)


@given(st.lists(st.integers(0, 9), min_size=0, max_size=40), st.integers(0, 40))
def test_hashing_can_be_resumed_at_any_page_boundary(tokens, cut):
    array, at = np.array(tokens, dtype=np.int32), min(cut, len(tokens)) // SIZE * SIZE
    head = chain_hashes(array[:at], SIZE, root_hash(b"s"))
    tail = chain_hashes(array[at:], SIZE, head[-1] if head else root_hash(b"s"))
    assert head + tail == chain_hashes(array, SIZE, root_hash(b"s"))
