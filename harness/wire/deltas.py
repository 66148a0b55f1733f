"""Two snapshots of one target → what happened between them. Never a silent 0: Increase, Reset or Missing."""

from __future__ import annotations

from collections.abc import Mapping

from harness.model.counting import Counter, CounterDelta, Increase, Missing, Reset, Snapshot


def difference(before: Snapshot, after: Snapshot) -> Mapping[Counter, CounterDelta]:
    """One delta for every counter that either snapshot holds.

    Reset: the counter went backwards, or the process behind the target changed (other `process_start`), in which case
    a larger value proves nothing either. Missing: not exposed in one of the two, or a scrape failed; the reason says
    which. A counter that neither holds is not in the mapping.
    """
    restarted = (
        before.process_start is not None
        and after.process_start is not None
        and before.process_start != after.process_start
    )
    return {
        counter: _delta(counter, before, after, restarted=restarted)
        for counter in Counter
        if counter in before.samples or counter in after.samples
    }


def _delta(counter: Counter, before: Snapshot, after: Snapshot, *, restarted: bool) -> CounterDelta:
    first, last = before.samples.get(counter), after.samples.get(counter)
    if first is None:
        return Missing(reason=_reason("before", before))
    if last is None:
        return Missing(reason=_reason("after", after))
    if restarted or last < first:
        return Reset(before=first, after=last)
    return Increase(before=first, after=last)


def _reason(when: str, snapshot: Snapshot) -> str:
    return f"{when}: {snapshot.error or 'not exposed'}"
