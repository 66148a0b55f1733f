import asyncio
import gc
import time

from harness.client.window import Window, steal_ns


def hold_the_loop() -> None:
    time.sleep(0.03)


async def test_the_collector_is_frozen_inside_and_as_before_outside() -> None:
    assert gc.isenabled()
    window = Window(freeze_gc=True)
    with window.open():
        assert window.frozen
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert not window.frozen


async def test_the_last_of_several_requests_restores_the_collector() -> None:
    window = Window(freeze_gc=True)
    with window.open():
        with window.open():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


async def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with Window(freeze_gc=True).open():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


async def test_an_error_inside_restores_the_collector() -> None:
    try:
        with Window(freeze_gc=True).open():
            raise LookupError  # noqa: TRY301 - stands for a failing request
    except LookupError:
        pass
    assert gc.isenabled()


async def test_pauses_of_an_unfrozen_collector_are_measured() -> None:
    window = Window(freeze_gc=False)
    start = time.monotonic_ns()
    with window.open():
        gc.collect()
        end = time.monotonic_ns()
        assert 0 < window.gc_pause_ns(start, end) <= end - start
        assert window.gc_pause_ns(end, end + 1) == 0


async def test_a_blocked_loop_is_seen_even_before_its_timer_ran() -> None:
    window = Window(freeze_gc=False)
    with window.open():
        await asyncio.sleep(0.005)
        start = time.monotonic_ns()
        hold_the_loop()
        assert window.lag_ns(start, time.monotonic_ns()) >= 25_000_000


async def test_lag_is_charged_only_to_spans_it_overlapped() -> None:
    window = Window(freeze_gc=False)
    with window.open():
        early = time.monotonic_ns()
        await asyncio.sleep(0.005)
        before = time.monotonic_ns()
        hold_the_loop()
        await asyncio.sleep(0.005)
        after = time.monotonic_ns()
        assert window.lag_ns(before, after) >= 25_000_000
        assert window.lag_ns(early - 2, early - 1) == 0


def test_steal_is_a_count_or_unknown() -> None:
    stolen = steal_ns()
    assert stolen is None or stolen >= 0
