"""What the time model predicts for the published workloads, on a virtual clock: chains, sessions, windows.

Only token counts matter here; the paged cache and HTTP are left out. Sizes in tokens, times in s at scale 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness.sim import timing
from harness.sim.scheduler import Scheduler, Sequence
from harness.sim.timing import TimeParams

TURN_TOKENS = 1055
"""Growth of the rendered prompt from one turn to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes that are no physical parameters: block and chunk in tokens, engine budget, answer lengths."""

    block: int = 1568
    chunk: int = 1568
    token_budget: int = 8192
    answer_tokens: int = 36
    window_answer_tokens: int = 18
    """Windows of `paper` ask for the same values as an array. Both counts include the end token."""


def chain_ttft(p: TimeParams, n: int, step: str, *, on: bool, geometry: Geometry = Geometry()) -> float:
    """TTFT of `cold`, `local` or `cross` for a prompt of `n` tokens, in s."""
    hit = (n - 1) // geometry.block * geometry.block
    local = hit if step == "local" else 0
    shared = n // geometry.chunk * geometry.chunk
    external = max(0, shared - (1 if shared == n else 0)) if step == "cross" and on else 0
    return timing.predict_ttft(p, n, local, external, connector=on)


@dataclass(slots=True)
class Session:
    """A closed-loop conversation: the next turn starts when the last one ended."""

    initial: int
    replica: int
    alternating: bool
    turns: int
    turn: int = 0
    known: dict[int, int] = field(default_factory=dict)
    shared: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)

    def next_request(self, p: TimeParams, key: int, now_ns: int, geometry: Geometry, *, on: bool) -> Sequence:
        """The next turn as a sequence, with its hits worked out from token counts."""
        n = self.initial + TURN_TOKENS * self.turn
        local = min(self.known.get(self.target, 0), n - 1) // geometry.block * geometry.block
        external = max(0, min(self.shared, n - 1) // geometry.chunk * geometry.chunk - local) if on else 0
        front = timing.frontend_seconds(p, n, connector=on) + timing.transfer_seconds(p, external)
        ready = now_ns + timing.nanoseconds(front, 1.0)
        return Sequence(key, n, local + external, geometry.answer_tokens, ready)

    @property
    def target(self) -> int:
        """Which replica the current turn goes to."""
        return (self.replica + self.turn) % 2 if self.alternating else self.replica

    def finish(self, seq: Sequence) -> None:
        """The turn ended: its prompt is now known to its replica and to the shared tier."""
        self.known[self.target] = seq.prompt
        self.shared = max(self.shared, seq.prompt)
        self.turn += 1


def run_sessions(
    p: TimeParams, sessions: list[Session], *, on: bool, geometry: Geometry = Geometry()
) -> tuple[float, int]:
    """Drive sessions together over two replicas; (wall time in s, output tokens)."""
    engines = [Scheduler(p, token_budget=geometry.token_budget) for _ in range(2)]
    owner = dict(enumerate(sessions))
    for key, session in owner.items():
        engines[session.target].add(session.next_request(p, key, 0, geometry, on=on))
    now, tokens = 0, 0
    while steps := [(step, engine) for engine in engines if (step := engine.plan()) is not None]:
        step, engine = min(steps, key=lambda pair: pair[0].end_ns)
        now = step.end_ns
        for seq in engine.complete(step):
            tokens += 1
            session = owner[seq.key]
            if seq.done:
                session.finish(seq)
                if session.turn < session.turns:
                    engines[session.target].add(session.next_request(p, seq.key, now, geometry, on=on))
    return now / 1e9, tokens


def session_wall(p: TimeParams, initial: int, *, alternating: bool, on: bool, geometry: Geometry = Geometry()) -> float:
    """Wall time of one lone six-turn session, in s."""
    return run_sessions(p, [Session(initial, 0, alternating, 6)], on=on, geometry=geometry)[0]


def window_gain(p: TimeParams, count: int, *, alternating: bool, geometry: Geometry = Geometry()) -> float:
    """Change of output tokens/s from OFF to ON for `count` sessions at once (32k, four turns), in percent."""

    def throughput(on: bool) -> float:
        sessions = [Session(32_000, i % 2, alternating, 4) for i in range(count)]
        short = replace(geometry, answer_tokens=geometry.window_answer_tokens)
        wall, tokens = run_sessions(p, sessions, on=on, geometry=short)
        return tokens / wall

    return 100.0 * (throughput(True) / throughput(False) - 1.0)
