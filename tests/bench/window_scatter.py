"""How far the gain of a window moves with answer lengths and with the host's own delay between turns: the model alone.

    python -m tests.bench.window_scatter [--windows 300]

Nothing is measured here: `harness.sim.prediction` runs windows of 4 and 8 alternating sessions on a virtual clock, with
answers of one length or of the lengths that random digits have under the simulator's tokenizer, and with an exponential
delay at every turn (what a host adds, divided by the time scale).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.fixtures.planting import answer_text
from harness.fixtures.reference import token_counter
from harness.sim.prediction import Geometry, Session, run_sessions
from harness.sim.scheduler import Sequence
from harness.sim.settings import load_preset
from harness.sim.timing import TimeParams

ROOT = Path(__file__).parents[2]
SIZE, TURNS = 32_000, 4
TOLERANCE = {4: (77.0, 97.0), 8: (68.0, 88.0)}
"""Published gain of each window, percent, ± 10 points."""

Lengths = Callable[[], int]


@dataclass(slots=True)
class Delayed(Session):
    """A session whose answers have a length of their own and whose turns arrive late."""

    answer_tokens: int = 0
    delay: Callable[[], float] = float

    def next_request(self, p: TimeParams, key: int, now_ns: int, geometry: Geometry, *, on: bool) -> Sequence:
        """The next turn, late by a draw of `delay` (s at scale 1)."""
        own = replace(geometry, answer_tokens=self.answer_tokens)
        late = now_ns + round(self.delay() * 1e9)
        return super(Delayed, self).next_request(p, key, late, own, on=on)


def gain(p: TimeParams, count: int, lengths: Lengths, delay: Callable[[], float]) -> float:
    """Change of output tokens/s from OFF to ON of one pair of windows, percent; answers are equal in both."""
    answers = [lengths() for _ in range(count)]

    def throughput(on: bool) -> float:
        sessions: list[Session] = [
            Delayed(SIZE, index % 2, alternating=True, turns=TURNS, answer_tokens=tokens, delay=delay)
            for index, tokens in enumerate(answers)
        ]
        wall, tokens = run_sessions(p, sessions, on=on)
        return tokens / wall

    return 100.0 * (throughput(True) / throughput(False) - 1.0)


def random_digits(rng: random.Random) -> Lengths:
    """Tokens of an array of three random values of six digits, and the end token."""
    count = token_counter(ROOT / "fixtures/tokenizers/sim")

    def draw() -> int:
        values = {str(index): rng.randrange(100_000, 1_000_000) for index in range(3)}
        return count(answer_text(values, "marker", "array")) + 1

    return draw


def main() -> None:
    """One line a case: mean and spread of single gains, share of means of two pairs within the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=300, help="pairs of windows a case")
    parser.add_argument("--scale", type=float, default=0.16, help="time scale of the windows")
    arguments = parser.parse_args()
    p = TimeParams(**load_preset("paper"))
    rng = random.Random(1)
    cases: dict[str, Lengths] = {f"{tokens} tokens": (lambda tokens=tokens: tokens) for tokens in (16, 18, 20, 36)}
    cases["random digits"] = random_digits(rng)
    for least_ms, mean_ms in ((0.9, 0.5), (1.0, 1.0)):

        def delay(least: float = least_ms, mean: float = mean_ms) -> float:
            return (least + rng.expovariate(1 / mean)) / 1e3 / arguments.scale

        for name, lengths in cases.items():
            for count, (low, high) in TOLERANCE.items():
                gains = [gain(p, count, lengths, delay) for _ in range(arguments.windows)]
                means = [(first + second) / 2 for first, second in zip(gains[::2], gains[1::2], strict=False)]
                record = {
                    "delay_ms": [least_ms, mean_ms],
                    "answers": name,
                    "sessions": count,
                    "gain_pct": round(statistics.mean(gains), 1),
                    "spread_points": round(statistics.pstdev(gains), 1),
                    "range_pct": [round(min(gains), 1), round(max(gains), 1)],
                    "means_of_two_within_tolerance": round(
                        sum(low <= mean <= high for mean in means) / max(1, len(means)), 3
                    ),
                }
                print(json.dumps(record))  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
