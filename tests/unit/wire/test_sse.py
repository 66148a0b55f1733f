from harness.wire.sse import SseDecoder, SseEvent


def decode(*reads: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for read in reads for event in decoder.feed(read)]


def data(*reads: bytes) -> list[str]:
    return [event.data for event in decode(*reads)]


def test_lf_cr_and_crlf_all_end_lines() -> None:
    assert data(b"data: a\n\ndata: b\r\rdata: c\r\n\r\n") == ["a", "b", "c"]


def test_one_space_after_the_colon_is_dropped_and_no_more() -> None:
    assert data(b"data:a\n\ndata: b\n\ndata:  c\n\n") == ["a", "b", " c"]


def test_a_split_after_the_space_keeps_the_space_of_the_next_read() -> None:
    assert data(b"data: ", b" a\n\n") == [" a"]


def test_several_data_lines_are_joined_by_line_feeds() -> None:
    assert data(b"data: a\ndata:\ndata: b\n\n") == ["a\n\nb"]


def test_data_without_a_colon_is_an_empty_line_of_data() -> None:
    assert data(b"data\n\n") == [""]


def test_blank_lines_without_data_dispatch_nothing() -> None:
    assert decode(b"\n\n\r\n\r\nevent: error\n\n") == []


def test_the_event_name_belongs_to_its_own_event_only() -> None:
    assert [event.name for event in decode(b"event: error\ndata: a\n\ndata: b\n\n")] == ["error", "message"]


def test_a_name_without_data_does_not_leak_into_the_next_event() -> None:
    assert [event.name for event in decode(b"event: error\n\ndata: b\n\n")] == ["message"]


def test_comments_are_reported_and_do_not_break_an_event() -> None:
    events = decode(b"data: a\n: ping\ndata: b\n\n")
    assert [(event.data, event.comment) for event in events] == [("ping", True), ("a\nb", False)]


def test_id_retry_and_unknown_fields_are_ignored() -> None:
    assert data(b"id: 1\nretry: 5\nfoo: bar\nDATA: no\ndata: a\n\n") == ["a"]


def test_one_byte_order_mark_at_the_start_is_dropped() -> None:
    assert data(b"\xef\xbb", b"\xbfdata: a\n\n") == ["a"]


def test_a_later_byte_order_mark_makes_another_field() -> None:
    assert data(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == ["a"]


def test_an_event_is_complete_with_the_cr_of_its_blank_line() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [SseEvent("a")]
    assert decoder.feed(b"\n") == []
    assert decoder.unfinished() is None


def test_an_unfinished_event_is_told_and_not_dispatched() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\ndata: b") == []
    assert decoder.unfinished() == b"data: a\ndata: b"


def test_events_before_an_invalid_byte_are_kept_and_nothing_after_it_is_read() -> None:
    decoder = SseDecoder()
    events = decoder.feed(b"data: a\n\ndata: \xff\n\ndata: c\n\n")
    assert [event.data for event in events] == ["a"]
    assert decoder.error is not None
    assert decoder.feed(b"data: d\n\n") == []


def test_a_truncated_character_before_the_end_of_a_line_is_invalid() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: \xe4\xb8\n\n")
    assert decoder.error is not None
