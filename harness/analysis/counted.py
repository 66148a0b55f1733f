"""The counters table of one block as arrays: request × target × counter.

Strategy: a block of the paper's plan holds some 2,500 counter rows. Turning each into an object takes longer than all
other checks of the block together, and nearly always nothing is found. So the rows are laid out as arrays once, the
rules that only this table can judge are array expressions, and objects are made for the few requests and the windows
that somebody asks about.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.model.counting import Counter, CounterDelta, Increase, Missing, Reset, WindowCounters
from harness.rules.facts import required

if TYPE_CHECKING:
    from harness.analysis.grid import BoolArray, IntArray, Layout
    from harness.model.planned import PlannedBlock
    from harness.model.screening import Screening

COUNTERS = tuple(Counter)
_NUMBER = {counter: i for i, counter in enumerate(COUNTERS)}
_NAMES = pa.array([str(counter) for counter in COUNTERS], pa.string())
_WORK = [_NUMBER[c] for c in (Counter.LOCAL_QUERIES, Counter.PROMPT_TOKENS, Counter.GENERATED_TOKENS)]
_LOSSES = [
    _NUMBER[c]
    for c in (
        Counter.PREEMPTIONS,
        Counter.POOL_EVICTED_CHUNKS,
        Counter.POOL_ALLOCATION_FAILURES,
        Counter.POOL_DROPPED_EVENTS,
    )
]
_UNREAD, _MISSING, _RESET, _INCREASE = range(4)


class StoredCounters:
    """The counters table of one block; requests are those of the layout, other keys are concurrency windows."""

    def __init__(self, table: pa.Table, layout: Layout) -> None:
        self._table = table.select(["key", "target", "counter", "before", "after", "status", "reason"])
        self._index = layout.index
        keys = self._column("key")
        codes = pc.fill_null(pc.index_in(keys, value_set=layout.value_set), -1)
        self._of_request: IntArray = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        targets = pc.dictionary_encode(self._column("target"))
        self._targets: list[str] = targets.dictionary.to_pylist()
        target: IntArray = pc.fill_null(targets.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        counters = pc.fill_null(pc.index_in(self._column("counter"), value_set=_NAMES), -1)
        counter: IntArray = counters.to_numpy(zero_copy_only=False).astype(np.int64)
        self._known: BoolArray = (target >= 0) & (counter >= 0)
        shape = (len(layout.keys), max(len(self._targets), 1), len(COUNTERS))
        self._kind: IntArray = np.full(shape, _UNREAD, dtype=np.int64)
        self._delta: IntArray = np.zeros(shape, dtype=np.int64)
        here = self._known & (self._of_request >= 0)
        cells = self._of_request[here], target[here], counter[here]
        kind, delta = self._judged()
        self._kind[cells], self._delta[cells] = kind[here], delta[here]
        self._has: BoolArray = (self._kind != _UNREAD).any(axis=(1, 2))

    def _column(self, name: str) -> Any:
        column: Any = self._table[name].combine_chunks()
        return pa.concat_arrays(column.chunks) if hasattr(column, "chunks") else column

    def _judged(self) -> tuple[IntArray, IntArray]:
        """(kind, increment) of every row, as `_change` says it of one."""
        before, after = self._column("before"), self._column("after")
        status = self._column("status")
        absent = pc.or_(pc.or_(pc.is_null(before), pc.is_null(after)), pc.equal(status, pa.scalar("missing")))
        absent = pc.fill_null(absent, False).to_numpy(zero_copy_only=False)
        reset = pc.fill_null(pc.equal(status, pa.scalar("reset")), False).to_numpy(zero_copy_only=False)
        kind = np.where(absent, _MISSING, np.where(reset, _RESET, _INCREASE))
        first, last = (pc.fill_null(c, 0.0).to_numpy(zero_copy_only=False) for c in (before, after))
        return kind, np.where(kind == _INCREASE, np.rint(last - first), 0).astype(np.int64)

    def has(self, key: str) -> bool:
        """True where the table has rows of that request or window."""
        return bool(self._has[self._index[key]]) if key in self._index else key in self._windows

    def window(self, key: str) -> WindowCounters:
        """All deltas around one request or window."""
        return WindowCounters(deltas=self._deltas(key))

    def pools(self, key: str, replicas: tuple[str, ...]) -> tuple[str, ...]:
        """Cache services that were read around that request."""
        return tuple(target for target in self._deltas(key) if target not in replicas)

    def _deltas(self, key: str) -> dict[str, dict[Counter, CounterDelta]]:
        if key not in self._index:
            return self._windows.get(key, {})
        return self._changes(self._known & (self._of_request == self._index[key])).get(key, {})

    @cached_property
    def _windows(self) -> dict[str, dict[str, dict[Counter, CounterDelta]]]:
        return self._changes(self._known & (self._of_request < 0))

    def _changes(self, rows: BoolArray) -> dict[str, dict[str, dict[Counter, CounterDelta]]]:
        """Key → target → counter → what happened, of the chosen rows."""
        out: dict[str, dict[str, dict[Counter, CounterDelta]]] = {}
        for row in self._table.take(np.flatnonzero(rows)).to_pylist():
            change = _change(row["before"], row["after"], row["status"], row["reason"])
            out.setdefault(row["key"], {}).setdefault(row["target"], {})[Counter(row["counter"])] = change
        return out

    def at(self, targets: npt.NDArray[np.object_], counter: Counter) -> tuple[IntArray, BoolArray]:
        """(increment, known) of a counter per key of the layout, at the target named for that key."""
        number = {target: i for i, target in enumerate(self._targets)}
        place = np.array([number.get(target, -1) for target in targets], dtype=np.int64)
        keys = np.arange(len(place))
        known = (self._kind[keys, place, _NUMBER[counter]] == _INCREASE) & (place >= 0)
        return np.where(known, self._delta[keys, place, _NUMBER[counter]], 0), known

    @property
    def read(self) -> BoolArray:
        """Per key of the layout: the table has rows of that request."""
        return self._has

    def suspects(self, plan: PlannedBlock, screening: Screening) -> set[str]:
        """Requests about which only this table can tell: resets, missing series, idle replicas that worked, losses."""
        replicas = [replica.name for replica in screening.engine.replicas]
        needed = [_NUMBER[c] for c in required(screening.engine, screening.arm(plan.arm))]
        moved = (self._kind == _INCREASE) & (self._delta != 0)
        found = (self._kind == _RESET).any(axis=(1, 2)) | moved[:, :, _LOSSES].any(axis=(1, 2))
        works = moved[:, :, _WORK].any(axis=2)
        for replica in replicas:
            if replica not in self._targets:
                found |= bool(needed)
                continue
            place = self._targets.index(replica)
            kinds = self._kind[:, place, needed]
            found |= ~((kinds == _INCREASE) | (kinds == _RESET)).all(axis=1)
        idle: dict[str, list[int]] = {
            r: [self._targets.index(o) for o in replicas if o != r and o in self._targets] for r in replicas
        }
        out = set()
        for request in plan.requests:
            k = self._index[request.key]
            if request.window is not None or not self._has[k]:
                continue
            if found[k] or works[k, idle.get(request.replica, [])].any():
                out.add(request.key)
        return out


def _change(before: float | None, after: float | None, status: str, reason: str | None) -> CounterDelta:
    if status == "missing" or before is None or after is None:
        return Missing(reason=reason or "not exposed")
    return Reset(before=before, after=after) if status == "reset" else Increase(before=before, after=after)
