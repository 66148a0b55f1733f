"""Continuous batching with chunked prefill as a state machine on a timeline of nanoseconds. No clock, no I/O.

Strategy: the engine alternates steps. A step begins when the engine is free and a sequence is ready, takes
every ready sequence in order (one token for each that decodes, a chunk of prompt for each that prefills) up to
the token budget, and lasts what `timing` says. Whoever drives it waits until `Step.end_ns` and then calls
`complete`. Because steps are anchored to arrival stamps, a driver that is late does not move the timeline.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.sim import timing
from harness.sim.timing import TimeParams


@dataclass(slots=True)
class Sequence:
    """One request inside the engine. `cached` prompt tokens were recovered; `ready_ns` includes their load."""

    key: int
    prompt: int
    cached: int
    outputs: int
    ready_ns: int
    scale: float = 1.0
    computed: int = 0
    produced: int = 0

    @property
    def prefilling(self) -> bool:
        """Whether prompt tokens are still to be computed."""
        return self.cached + self.computed < self.prompt

    @property
    def done(self) -> bool:
        """Whether every output token has been produced."""
        return self.produced >= self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One engine step: who decodes, who prefills how many tokens, from when to when."""

    start_ns: int
    end_ns: int
    decodes: tuple[Sequence, ...]
    prefills: tuple[tuple[Sequence, int], ...]

    @property
    def tokens(self) -> int:
        """Tokens computed in this step."""
        return len(self.decodes) + sum(count for _, count in self.prefills)


class Scheduler:
    """The running sequences of one replica, in order of admission."""

    def __init__(self, params: TimeParams, *, token_budget: int) -> None:
        self.params = params
        self.token_budget = token_budget
        self.free_ns = 0
        self._running: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Admit a sequence."""
        self._running[sequence.key] = sequence

    def remove(self, key: int) -> None:
        """Drop a sequence (cancelled); unknown keys are ignored."""
        self._running.pop(key, None)

    def next_start(self) -> int | None:
        """When the next step begins: the engine is free and somebody is ready. None while idle."""
        if not self._running:
            return None
        return max(self.free_ns, min(seq.ready_ns for seq in self._running.values()))

    def plan(self) -> Step | None:
        """The next step with all who are ready at its start, or None while idle."""
        start = self.next_start()
        if start is None:
            return None
        budget = self.token_budget
        decodes: list[Sequence] = []
        prefills: list[tuple[Sequence, int]] = []
        for seq in self._running.values():
            if seq.ready_ns > start or budget <= 0:
                continue
            if seq.prefilling:
                count = min(budget, seq.prompt - seq.cached - seq.computed)
                prefills.append((seq, count))
            else:
                count = 1
                decodes.append(seq)
            budget -= count
        length = self._prefill_ns(prefills) + self._decode_ns(decodes, sum(count for _, count in prefills))
        return Step(start_ns=start, end_ns=start + length, decodes=tuple(decodes), prefills=tuple(prefills))

    def _prefill_ns(self, prefills: list[tuple[Sequence, int]]) -> int:
        return sum(
            timing.nanoseconds(
                timing.prefill_seconds(self.params, count, cached=seq.cached, fresh=seq.computed), seq.scale
            )
            for seq, count in prefills
        )

    def _decode_ns(self, decodes: list[Sequence], prefilled: int) -> int:
        if not decodes:
            return 0
        contexts = [seq.prompt + seq.produced for seq in decodes]
        seconds = timing.decode_seconds(self.params, contexts, prefilled=prefilled)
        return timing.nanoseconds(seconds, max(seq.scale for seq in decodes))

    def complete(self, step: Step) -> list[Sequence]:
        """Apply a step; the sequences that produced a token in it, finished ones already removed."""
        self.free_ns = step.end_ns
        emitted: list[Sequence] = []
        for seq, count in step.prefills:
            seq.computed += count
            if not seq.prefilling:
                emitted.append(seq)
        emitted.extend(step.decodes)
        for seq in emitted:
            seq.produced += 1
            if seq.done:
                self.remove(seq.key)
        return emitted
