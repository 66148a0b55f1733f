import pytest

from harness.client.clock import ClockOffset, clock_step, read_offset
from harness.client.exchange import Exchange
from harness.model.observation import Failed, FailureKind

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"


OFFSET = 1_000_000_000_000
"""realtime − monotonic in these tests."""


@pytest.fixture(autouse=True)
def known_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.client.exchange.read_offset", lambda: ClockOffset(OFFSET, 100))


async def began(*reads: tuple[int | None, int, bytes]) -> Exchange:
    """An exchange with these (kernel's stamp on the monotonic clock, user ns, data) reads."""
    exchange = Exchange()
    exchange.begin()
    for at, user, data in reads:
        exchange.feed(None if at is None else at + OFFSET, user, data, len(data))
    return exchange


async def test_reads_that_share_a_kernel_stamp_were_one_segment_and_are_one_read() -> None:
    exchange = await began((10, 20, HEAD), (30, 40, b"abc"), (30, 45, b"def"))
    exchange.settle()
    assert [(read.at_ns, read.user_ns, read.data) for read in exchange.raw_reads()] == [
        (10, 20, b""),
        (30, 40, b"abcdef"),
    ]
    assert exchange.read_sizes() == ((10, 20, len(HEAD)), (30, 40, 6))
    assert exchange.stamp_source == "kernel"


async def test_stamps_of_headers_and_end_are_those_of_their_reads() -> None:
    exchange = await began((10, 20, HEAD[:5]), (30, 40, HEAD[5:]), (50, 60, b"abcdef"))
    exchange.settle()
    assert (exchange.first_byte_ns, exchange.headers_ns, exchange.end_ns) == (10, 30, 50)


@pytest.mark.parametrize(
    "stamps",
    [
        pytest.param([(10, 20), (None, 40)], id="a read without kernel stamp"),
        pytest.param([(30, 40), (20, 50)], id="going backwards"),
        pytest.param([(10, 20), (9_000_000, 40)], id="from the future"),
    ],
)
async def test_kernel_stamps_that_cannot_be_true_are_replaced_by_the_readers(
    stamps: list[tuple[int | None, int]],
) -> None:
    exchange = await began(*((*stamp, data) for stamp, data in zip(stamps, (HEAD, b"abcdef"), strict=True)))
    exchange.settle()
    assert exchange.stamp_source == "callback"
    assert [read.at_ns for read in exchange.raw_reads()] == [user for _, user in stamps]
    assert exchange.headers_ns == stamps[0][1]


async def test_a_step_of_the_clocks_is_recorded_and_kernel_stamps_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = await began((10, 20, HEAD), (30, 40, b"abcdef"))
    stepped = ClockOffset(OFFSET - 3_600_000_000_000, 100)
    monkeypatch.setattr("harness.client.exchange.read_offset", lambda: stepped)
    exchange.settle()
    assert exchange.clock_step_ns == -3_600_000_000_000
    assert exchange.stamp_source == "callback"
    assert exchange.end_ns == 40


async def stepped(monkeypatch: pytest.MonkeyPatch, *reads: tuple[int, int, bytes, int | None]) -> Exchange:
    """An exchange whose clocks step; reads are (kernel's stamp as the kernel gave it, user ns, data, offset then)."""
    exchange = await began()
    for realtime, user, data, offset in reads:
        exchange.feed(realtime, user, data, len(data), offset)
    monkeypatch.setattr("harness.client.exchange.read_offset", lambda: ClockOffset(OFFSET + 1_000_000, 100))
    exchange.settle()
    assert exchange.clock_step_ns == 1_000_000
    return exchange


async def test_across_a_step_of_the_clocks_each_stamp_is_converted_by_the_offset_of_its_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = OFFSET + 1_000_000
    exchange = await stepped(
        monkeypatch, (OFFSET + 10, 20, HEAD, OFFSET), (later + 30, 40, b"abc", later), (later + 50, 60, b"def", later)
    )
    assert exchange.stamp_source == "kernel"
    assert [read.at_ns for read in exchange.raw_reads()] == [10, 30, 50]


async def test_a_stamp_that_a_step_has_overtaken_lies_between_its_predecessor_and_its_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    back = OFFSET - 1_000_000
    forward = OFFSET + 1_000_000
    exchange = await stepped(
        monkeypatch,
        (OFFSET + 10, 20, HEAD, OFFSET),
        (OFFSET + 30, 40, b"abc", back),
        (OFFSET + 50, 60, b"def", forward),
    )
    assert [read.at_ns for read in exchange.raw_reads()] == [10, 40]
    assert exchange.end_ns == 40


async def test_parts_of_one_segment_stay_together_when_the_clocks_step_between_their_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = OFFSET + 1_000_000
    exchange = await stepped(
        monkeypatch,
        (OFFSET + 10, 20, HEAD, OFFSET),
        (OFFSET + 30, 40, b"abc", OFFSET),
        (OFFSET + 30, 45, b"def", later),
    )
    assert [(read.at_ns, read.data) for read in exchange.raw_reads()] == [(10, b""), (30, b"abcdef")]


async def test_a_step_under_reads_that_nobody_compared_the_clocks_at_leaves_the_readers_stamps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = await stepped(monkeypatch, (OFFSET + 10, 20, HEAD, OFFSET), (OFFSET + 30, 40, b"abcdef", None))
    assert exchange.stamp_source == "callback"
    assert [read.at_ns for read in exchange.raw_reads()] == [20, 40]


async def test_the_first_reason_of_a_failure_wins() -> None:
    exchange = await began()
    exchange.fail(FailureKind.TIMEOUT, "first")
    exchange.fail(FailureKind.RESET, "second")
    assert exchange.failure == Failed(kind=FailureKind.TIMEOUT, detail="first")


async def test_reads_after_the_end_change_nothing() -> None:
    exchange = await began((10, 20, HEAD + b"abcdef"), (30, 40, b"more"))
    exchange.eof(50)
    exchange.settle()
    assert exchange.failure is None
    assert exchange.end_ns == 10
    assert exchange.body() == b"abcdef"


async def test_a_read_that_comes_while_a_time_out_is_settled_is_not_seen() -> None:
    exchange = await began((10, 20, HEAD))
    exchange.fail(FailureKind.TIMEOUT, "x")
    exchange.settle()
    exchange._reads.append((OFFSET + 30, 40, 6, b"abcdef", None))
    assert len(exchange.raw_reads()) == len(exchange.read_sizes()) == 1


async def test_an_exchange_without_reads_has_no_kernel_stamps() -> None:
    exchange = await began()
    exchange.fail(FailureKind.TIMEOUT, "x")
    exchange.settle()
    assert exchange.stamp_source == "callback"
    assert exchange.first_byte_ns is None


def test_a_change_of_the_offset_within_the_brackets_is_no_step() -> None:
    assert clock_step(ClockOffset(1000, 300), ClockOffset(1200, 300)) == 0
    assert clock_step(ClockOffset(1000, 300), ClockOffset(9000, 300)) == 8000


def test_the_offset_between_the_clocks_is_read_within_a_narrow_bracket() -> None:
    first, second = read_offset(), read_offset()
    assert abs(first.offset_ns - second.offset_ns) <= first.bracket_ns + second.bracket_ns
