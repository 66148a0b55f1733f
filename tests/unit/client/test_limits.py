from dataclasses import replace

import pytest

from harness.client.limits import ClientLimits, client_limited
from harness.model.observation import (
    ClientHealth,
    Completed,
    Observation,
    Stamps,
    StampSource,
    StreamEvent,
)

MS = 1_000_000


def row(source: StampSource = "kernel", *, merged: bool = False, **health: int) -> Observation:
    reads = (1, 1) if merged else (1, 2)
    events = tuple(
        StreamEvent(
            index=index, at_ns=20 * MS * index, user_ns=20 * MS * index, read_index=read, kind="content", text="x"
        )
        for index, read in enumerate(reads)
    )
    return Observation(
        replica="A",
        url="",
        http_status=200,
        stamps=Stamps(start_ns=0, end_ns=1000 * MS),
        stamp_source=source,
        outcome=Completed(finish_reason="stop"),
        usage=None,
        content="xx",
        reasoning="",
        events=events,
        health=ClientHealth(**health),
    )


@pytest.mark.parametrize("source", ["kernel", "callback", "httpx"])
def test_a_quiet_client_limits_nothing(source: StampSource) -> None:
    assert client_limited(row(source, loop_lag_max_ns=4 * MS, late_send_ns=MS, clock_step_ns=0, cpu_steal_ns=0)) is None


@pytest.mark.parametrize("source", ["kernel", "callback", "httpx"])
def test_a_late_send_limits_any_row(source: StampSource) -> None:
    assert "late send: 3.0 ms" in (client_limited(row(source, late_send_ns=3 * MS)) or "")


@pytest.mark.parametrize("source", ["callback", "httpx"])
def test_loop_lag_limits_rows_that_the_loop_stamped(source: StampSource) -> None:
    assert "loop lag: 6.0 ms" in (client_limited(row(source, loop_lag_max_ns=6 * MS)) or "")


def test_loop_lag_alone_does_not_limit_kernel_stamps() -> None:
    assert client_limited(row(loop_lag_max_ns=60 * MS, kernel_delay_first_content_ns=60 * MS)) is None


def test_a_late_reader_that_found_the_first_tokens_merged_limits_kernel_stamps() -> None:
    assert "merged" in (client_limited(row(merged=True, loop_lag_max_ns=6 * MS)) or "")
    assert "merged" in (client_limited(row(merged=True, kernel_delay_first_content_ns=6 * MS)) or "")


def test_a_second_token_that_arrived_before_the_first_was_read_may_have_hidden_its_stamp() -> None:
    # Sent at 0 and 5 ms, joined by the kernel, read at 10.2 ms: the first is stamped 5 ms, the second by a third token.
    late = {"loop_lag_max_ns": 48 * MS, "kernel_delay_first_content_ns": 5_200_000}
    seen = row(**late)
    times = ((5 * MS, 10_200_000), (10 * MS, 10_210_000))
    joined = replace(
        seen,
        events=tuple(
            replace(e, at_ns=at, user_ns=at_user) for e, (at, at_user) in zip(seen.events, times, strict=True)
        ),
    )
    assert "late reader" in (client_limited(joined) or "")
    apart = ((0, 10_200_000), (20 * MS, 20_100_000))
    alone = replace(
        seen,
        events=tuple(
            replace(e, at_ns=at, user_ns=at_user) for e, (at, at_user) in zip(seen.events, apart, strict=True)
        ),
    )
    assert client_limited(alone) is None


def test_tokens_that_the_server_sent_together_do_not_limit_a_prompt_reader() -> None:
    assert client_limited(row(merged=True, loop_lag_max_ns=MS)) is None


def test_a_collector_pause_limits_rows_that_the_loop_stamped() -> None:
    assert "garbage" in (client_limited(row("callback", gc_pause_ns=6 * MS)) or "")
    assert client_limited(row("kernel", gc_pause_ns=6 * MS)) is None


def test_a_clock_step_limits_kernel_stamps_that_a_late_reader_converted() -> None:
    late = {"kernel_delay_max_ns": 600_000}
    assert "clock step" in (client_limited(row(clock_step_ns=-200_000, **late)) or "")
    assert client_limited(row("callback", clock_step_ns=-200_000, **late)) is None
    assert client_limited(row(clock_step_ns=-200_000, kernel_delay_max_ns=60_000)) is None
    assert client_limited(row(clock_step_ns=90_000, **late)) is None


def test_steal_is_judged_as_a_share_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert "steal: 10.0%" in (client_limited(row(cpu_steal_ns=200 * MS)) or "")
    assert client_limited(row(cpu_steal_ns=90 * MS)) is None


def test_a_tick_or_two_of_steal_in_a_short_request_says_nothing() -> None:
    assert client_limited(row(cpu_steal_ns=20 * MS), ClientLimits(steal_share=0.0001)) is None


def test_a_row_recorded_long_after_its_stream_is_limited_where_that_moment_ends_a_measured_time() -> None:
    assert "late row: 60.0 ms" in (client_limited(row(), recorded_ns=1060 * MS) or "")
    assert client_limited(row(), recorded_ns=1040 * MS) is None
    assert client_limited(row()) is None


def test_what_was_not_measured_limits_nothing() -> None:
    assert client_limited(row("callback")) is None


def test_thresholds_can_be_set() -> None:
    assert client_limited(row(late_send_ns=MS), ClientLimits(late_send_ns=0)) is not None
