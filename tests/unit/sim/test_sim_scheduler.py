"""Continuous batching on a virtual clock."""

from harness.sim.scheduler import Scheduler, Sequence
from harness.sim.timing import TimeParams, nanoseconds, predict_decode, prefill_seconds

PARAMS = TimeParams(
    prefill_per_token=1e-3,
    prefill_fresh_pair=0.0,
    prefill_cached_pair=0.0,
    decode_step=10e-3,
    decode_per_context_token=0.0,
)
MS = 1_000_000


def sequence(key, prompt=10, *, ready=0, outputs=1, cached=0, scale=1.0):
    return Sequence(key, prompt, cached, outputs, ready, scale)


def drive(scheduler):
    """Run to the end; (end in ms, [(key, tokens so far)]) of every step."""
    history = []
    while (step := scheduler.plan()) is not None:
        emitted = scheduler.complete(step)
        history.append((step.end_ns / MS, [(seq.key, seq.produced) for seq in emitted]))
    return history


def test_a_lone_request_gets_its_first_token_after_its_prefill():
    scheduler = Scheduler(PARAMS, token_budget=100)
    scheduler.add(sequence(1, ready=5 * MS))
    assert drive(scheduler) == [(15.0, [(1, 1)])]


def test_a_long_prompt_is_cut_into_chunks_of_the_budget():
    scheduler = Scheduler(PARAMS, token_budget=4)
    scheduler.add(sequence(1, prompt=10))
    assert [end for end, _ in drive(scheduler)] == [4.0, 8.0, 10.0]


def test_recovered_tokens_are_not_computed_again():
    scheduler = Scheduler(PARAMS, token_budget=100)
    scheduler.add(sequence(1, prompt=10, cached=8))
    assert drive(scheduler) == [(2.0, [(1, 1)])]


def test_prefill_follows_first_come_first_served():
    scheduler = Scheduler(PARAMS, token_budget=10)
    scheduler.add(sequence(1))
    scheduler.add(sequence(2))
    assert drive(scheduler) == [(10.0, [(1, 1)]), (20.0, [(2, 1)])]


def test_two_prompts_that_fit_the_budget_share_a_step():
    scheduler = Scheduler(PARAMS, token_budget=20)
    scheduler.add(sequence(1))
    scheduler.add(sequence(2))
    assert drive(scheduler) == [(20.0, [(1, 1), (2, 1)])]


def test_decoding_goes_on_beside_a_prefill():
    scheduler = Scheduler(PARAMS, token_budget=11)
    scheduler.add(sequence(1, prompt=1, outputs=3))
    scheduler.add(sequence(2, prompt=20, ready=1 * MS))
    # 1: prefill 1 ms; then steps of 10 prompt tokens each carry one decoded token of 1.
    assert drive(scheduler) == [(1.0, [(1, 1)]), (11.0, [(1, 2)]), (21.0, [(2, 1), (1, 3)])]


def test_decoding_members_share_a_step():
    scheduler = Scheduler(PARAMS, token_budget=100)
    scheduler.add(sequence(1, prompt=1, outputs=2))
    scheduler.add(sequence(2, prompt=1, outputs=2))
    assert drive(scheduler) == [(2.0, [(1, 1), (2, 1)]), (12.0, [(1, 2), (2, 2)])]


def test_who_is_not_ready_is_left_out_of_the_step():
    scheduler = Scheduler(PARAMS, token_budget=100)
    scheduler.add(sequence(1, prompt=5))
    scheduler.add(sequence(2, prompt=5, ready=3 * MS))
    assert drive(scheduler) == [(5.0, [(1, 1)]), (10.0, [(2, 1)])]


def test_the_engine_waits_for_the_next_ready_request():
    scheduler = Scheduler(PARAMS, token_budget=100)
    scheduler.add(sequence(1, prompt=1))
    scheduler.add(sequence(2, prompt=1, ready=50 * MS))
    assert [end for end, _ in drive(scheduler)] == [1.0, 51.0]


def test_a_late_driver_does_not_move_the_timeline():
    scheduler = Scheduler(PARAMS, token_budget=100)
    scheduler.add(sequence(1, ready=7 * MS))
    assert scheduler.plan().start_ns == 7 * MS


def test_a_removed_sequence_takes_no_further_part():
    scheduler = Scheduler(PARAMS, token_budget=4)
    scheduler.add(sequence(1))
    scheduler.complete(scheduler.plan())
    scheduler.remove(1)
    assert scheduler.plan() is None


def test_every_request_runs_on_its_own_scale():
    scheduler = Scheduler(PARAMS, token_budget=100)
    scheduler.add(sequence(1, prompt=10, scale=0.5))
    assert drive(scheduler) == [(5.0, [(1, 1)])]


def test_a_lone_request_takes_what_the_formulas_say():
    p = TimeParams()
    scheduler = Scheduler(p, token_budget=8192)
    scheduler.add(sequence(1, prompt=30_000, cached=1_000, outputs=20))
    ends = [end for end, emitted in drive(scheduler) if emitted]
    first = nanoseconds(prefill_seconds(p, 29_000, cached=1_000), 1.0)
    assert abs(ends[0] * MS - first) < 10
    assert abs((ends[-1] - ends[0]) * MS - nanoseconds(predict_decode(p, 30_000, 20), 1.0)) < 100
