from harness.model.counting import Counter, Increase, Missing, Reset, Snapshot
from harness.wire.deltas import difference

C = Counter.LOCAL_HITS


def snapshot(samples: dict[Counter, float], process_start: float | None = 1.0, error: str | None = None) -> Snapshot:
    return Snapshot(
        target="A", at_ns=0, samples=samples, running=None, waiting=None, process_start=process_start, error=error
    )


def test_a_larger_value_is_an_increase() -> None:
    assert difference(snapshot({C: 1}), snapshot({C: 5}))[C] == Increase(before=1, after=5)


def test_an_equal_value_is_an_increase_of_nothing() -> None:
    delta = difference(snapshot({C: 5}), snapshot({C: 5}))[C]
    assert isinstance(delta, Increase)
    assert delta.delta == 0


def test_a_smaller_value_is_a_reset() -> None:
    assert difference(snapshot({C: 5}), snapshot({C: 1}))[C] == Reset(before=5, after=1)


def test_another_process_is_a_reset_even_where_the_value_grew() -> None:
    assert difference(snapshot({C: 1}), snapshot({C: 5}, 2.0))[C] == Reset(before=1, after=5)


def test_a_series_that_appears_or_vanishes_is_missing_and_says_when() -> None:
    assert difference(snapshot({}), snapshot({C: 5}))[C] == Missing(reason="before: not exposed")
    assert difference(snapshot({C: 5}), snapshot({}))[C] == Missing(reason="after: not exposed")


def test_a_failed_scrape_gives_its_error_as_the_reason() -> None:
    assert difference(snapshot({C: 5}), snapshot({}, error="HTTP 503"))[C] == Missing(reason="after: HTTP 503")


def test_a_counter_that_nobody_exposes_is_not_listed() -> None:
    assert difference(snapshot({}), snapshot({})) == {}
