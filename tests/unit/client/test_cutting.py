from harness.client.cutting import Cutter, EventCutter, RecordCutter


def cuts(cutter: Cutter, *waiting: bytes) -> list[bytes]:
    """All reads that a reader would make of what waits, socket look by socket look."""
    found = []
    for data in waiting:
        buffer, start = bytearray(data), 0
        while start < len(data):
            end = cutter.end(buffer, start, len(data))
            assert start < end <= len(data)
            found.append(data[start:end])
            start = end
    return found


def record(length: int) -> bytes:
    return b"\x17\x03\x03" + length.to_bytes(2, "big") + b"x" * length


EVENT = b"data: " + b"x" * 40 + b"\n\n"


def test_one_event_is_one_read_with_the_tail_of_its_chunk() -> None:
    assert cuts(EventCutter(), b"2f\r\n" + EVENT + b"\r\n") == [b"2f\r\n" + EVENT + b"\r\n"]


def test_waiting_events_are_read_one_by_one() -> None:
    assert cuts(EventCutter(), EVENT * 3) == [EVENT] * 3


def test_crlf_events_are_read_one_by_one() -> None:
    event = EVENT.replace(b"\n\n", b"\r\n\r\n")
    assert cuts(EventCutter(), event * 2) == [event] * 2


def test_an_unfinished_event_is_read_as_it_is() -> None:
    assert cuts(EventCutter(), b"data: abc", b"def\n\n") == [b"data: abc", b"def\n\n"]


def test_records_are_read_one_by_one() -> None:
    assert cuts(RecordCutter(), record(10) + record(0) + record(300)) == [record(10), record(0), record(300)]


def test_a_record_split_anywhere_is_followed_to_its_end() -> None:
    raw = record(10) + record(4)
    for at in range(1, len(raw)):
        found = cuts(RecordCutter(), raw[:at], raw[at:])
        assert b"".join(found) == raw
        edges = {sum(map(len, found[: index + 1])) for index in range(len(found))}
        assert len(record(10)) in edges
