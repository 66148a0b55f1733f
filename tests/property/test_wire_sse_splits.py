"""Any split of the same bytes into reads gives the same events; the client must not depend on network timing."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from harness.wire.sse import SseDecoder, SseEvent

LINE_ENDS = st.sampled_from(["\n", "\r", "\r\n"])
VALUES = st.text(alphabet=st.sampled_from("a :\u2028\u2029\u0085\u4e2d\U0001f600\ufeff\x00"), max_size=6)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """A well-formed stream and the data of its events."""
    text, expected = "", []
    for _ in range(draw(st.integers(0, 5))):
        lines = draw(st.lists(VALUES, min_size=1, max_size=3))
        end = draw(LINE_ENDS)
        comment = draw(st.booleans())
        text += "".join(f"data: {line}{end}" for line in lines) + (f":ping{end}" if comment else "") + end
        expected.append("\n".join(lines))
    return text.encode(), expected


def cut(stream: bytes, points: list[int]) -> list[bytes]:
    edges = [0, *sorted(point % (len(stream) + 1) for point in points), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def decode(reads: list[bytes]) -> tuple[list[SseEvent], str | None, bytes | None]:
    decoder = SseDecoder()
    events = [event for read in reads for event in decoder.feed(read)]
    return events, decoder.error, decoder.unfinished()


@given(streams(), st.lists(st.integers(0, 500), max_size=12))
def test_well_formed_streams_give_their_events_however_they_are_cut(
    stream: tuple[bytes, list[str]], points: list[int]
) -> None:
    raw, expected = stream
    events, error, unfinished = decode(cut(raw, points))
    assert [event.data for event in events if not event.comment] == expected
    assert error is None
    assert unfinished is None


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_arbitrary_bytes_decode_alike_however_they_are_cut(raw: bytes, points: list[int]) -> None:
    assert decode(cut(raw, points)) == decode([raw])


@given(st.lists(st.sampled_from([b"\r", b"\n", b"data: x", b":", b"\xef\xbb\xbf", b"event: error"]), max_size=14))
def test_line_ends_in_any_order_decode_alike_byte_by_byte(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    assert decode([raw[index : index + 1] for index in range(len(raw))]) == decode([raw])
