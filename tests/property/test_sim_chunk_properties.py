"""The shared tier against a model that keeps a plain list, least recently used first."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.sim.chunk_store import ChunkKey, ChunkStore

CAPACITY, WATERMARK, RATIO = 6, 0.7, 0.4
KEYS = [ChunkKey("m", "s", bytes([i])) for i in range(5)]
TOKENS = np.zeros(4, dtype=np.int32)

operations = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, 4), st.integers(1, 5)),
        st.tuples(st.just("commit"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("lookup"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("release"), st.integers(0, 5), st.just(0)),
    ),
    max_size=40,
)


class ListModel:
    """[key, writing, readers] rows."""

    def __init__(self):
        self.rows, self.evicted, self.failed = [], 0, 0

    def _row(self, key):
        return next((row for row in self.rows if row[0] == key), None)

    def store(self, keys):
        taken = []
        for key in keys:
            if self._row(key) is None:
                if len(self.rows) >= CAPACITY:
                    self.failed += 1
                else:
                    self.rows.append([key, True, 0])
                    taken.append(key)
        return taken

    def commit(self, keys):
        for key in keys:
            self._row(key)[1] = False
        if len(self.rows) / CAPACITY > WATERMARK:
            for _ in range(max(1, int(len(self.rows) * RATIO))):
                victim = next((row for row in self.rows if not row[1] and row[2] == 0), None)
                if victim is not None:
                    self.rows.remove(victim)
                    self.evicted += 1

    def lookup(self, keys):
        found = []
        for key in keys:
            row = self._row(key)
            if row is None or row[1]:
                break
            self.rows.remove(row)
            self.rows.append([key, False, row[2] + 1])
            found.append(key)
        return found

    def release(self, keys):
        for key in keys:
            self._row(key)[2] -= 1


@settings(max_examples=300, deadline=None)
@given(operations)
def test_it_behaves_like_a_list_in_order_of_use(steps):
    tier = ChunkStore(chunk_size=4, capacity=CAPACITY, watermark=WATERMARK, eviction_ratio=RATIO)
    model, stores, leases = ListModel(), [], []
    for kind, first, count in steps:
        if kind == "store":
            keys = KEYS[first : first + count]
            taken = tier.begin(keys, [TOKENS] * len(keys), first=first, root=b"")
            assert taken == model.store(keys)
            stores.append(taken)
        elif kind == "commit" and stores:
            keys = stores.pop(first % len(stores))
            tier.commit(keys)
            model.commit(keys)
        elif kind == "lookup":
            leases.append(tier.lookup(KEYS[:first]))
            assert leases[-1] == model.lookup(KEYS[:first])
        elif kind == "release" and leases:
            keys = leases.pop(first % len(leases))
            tier.release(keys)
            model.release(keys)
        assert len(tier) == len(model.rows) <= CAPACITY
        assert tier.write_locked == sum(row[1] for row in model.rows)
        assert tier.read_locked == sum(row[2] > 0 for row in model.rows)
        assert tier.counters.evicted == model.evicted
        assert tier.counters.allocation_failures["m"] == model.failed
