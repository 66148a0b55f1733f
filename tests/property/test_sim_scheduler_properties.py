"""Properties of continuous batching."""

from hypothesis import given
from hypothesis import strategies as st

from harness.sim.scheduler import Scheduler, Sequence
from harness.sim.timing import TimeParams

sequences = st.lists(
    st.builds(
        lambda prompt, cached, outputs, ready, scale: (prompt, min(cached, prompt - 1), outputs, ready, scale),
        st.integers(1, 5_000),
        st.integers(0, 5_000),
        st.integers(1, 8),
        st.integers(0, 10**9),
        st.sampled_from([0.05, 1.0]),
    ),
    min_size=1,
    max_size=6,
)


@given(sequences, st.integers(8, 4_096))
def test_everybody_gets_exactly_the_tokens_they_asked_for_and_never_before_they_are_ready(specs, budget):
    scheduler = Scheduler(TimeParams(), token_budget=budget)
    for key, (prompt, cached, outputs, ready, scale) in enumerate(specs):
        scheduler.add(Sequence(key, prompt, cached, outputs, ready, scale))
    produced, computed, last_end = dict.fromkeys(range(len(specs)), 0), dict.fromkeys(range(len(specs)), 0), 0
    while (step := scheduler.plan()) is not None:
        assert step.tokens <= budget
        assert step.start_ns >= last_end
        last_end = step.end_ns
        for seq, count in step.prefills:
            assert specs[seq.key][3] <= step.start_ns
            computed[seq.key] += count
        for seq in scheduler.complete(step):
            produced[seq.key] += 1
    for key, (prompt, cached, outputs, _, _) in enumerate(specs):
        assert produced[key] == outputs
        assert computed[key] == prompt - cached
