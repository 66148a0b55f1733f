import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.framing import FramingError, ResponseFraming

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Content-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def test_body_bytes_are_given_with_the_read_that_held_them() -> None:
    framing = ResponseFraming()
    assert framing.feed(CHUNKED) == b""
    assert framing.headers_done
    assert framing.feed(b"3\r\nab") == b"ab"
    assert framing.feed(b"c\r\n2\r\nde\r\n") == b"cde"
    assert framing.feed(b"0\r\n\r\n") == b""
    assert framing.complete
    assert framing.keep_alive


def test_header_names_are_found_in_any_case() -> None:
    framing = ResponseFraming()
    framing.feed(CHUNKED)
    assert framing.header(b"content-type") == "text/event-stream"
    assert framing.header(b"content-length") is None


def test_trailers_are_not_headers() -> None:
    framing = ResponseFraming()
    framing.feed(CHUNKED + b"0\r\ncontent-type: text/html\r\n\r\n")
    assert framing.complete
    assert [name for name, _ in framing.headers] == [b"Content-Type", b"transfer-encoding"]


def test_a_cut_chunked_body_is_not_complete_at_the_end() -> None:
    framing = ResponseFraming()
    framing.feed(CHUNKED + b"5\r\nab")
    assert not framing.eof()


def test_a_body_without_a_length_is_complete_at_the_end() -> None:
    framing = ResponseFraming()
    assert framing.feed(HEAD + b"\r\nabc") == b"abc"
    assert not framing.complete
    assert framing.eof()
    assert not framing.keep_alive


def test_an_end_within_the_headers_is_not_complete() -> None:
    framing = ResponseFraming()
    framing.feed(HEAD)
    assert not framing.eof()


def test_bytes_after_the_end_forbid_reuse_and_are_no_body() -> None:
    framing = ResponseFraming()
    assert framing.feed(HEAD + b"content-length: 1\r\n\r\naHTTP/1.1 500 Oops\r\n\r\n") == b"a"
    assert (framing.complete, framing.surplus, framing.keep_alive, framing.status) == (True, True, False, 200)
    assert framing.feed(b"more") == b""


def test_rubbish_after_the_end_leaves_the_response_complete() -> None:
    framing = ResponseFraming()
    assert framing.feed(HEAD + b"content-length: 1\r\n\r\na\x00\x01rubbish") == b"a"
    assert (framing.complete, framing.surplus) == (True, True)


def test_an_interim_response_is_skipped() -> None:
    framing = ResponseFraming()
    framing.feed(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    assert not framing.headers_done
    framing.feed(HEAD + b"content-length: 0\r\n\r\n")
    assert (framing.status, framing.complete) == (200, True)
    assert framing.header(b"link") is None


def test_what_is_no_http_is_an_error() -> None:
    with pytest.raises(FramingError, match="SSH"):
        ResponseFraming().feed(b"SSH-2.0-OpenSSH\r\n")


def test_connection_close_forbids_reuse() -> None:
    framing = ResponseFraming()
    framing.feed(HEAD + b"connection: close\r\ncontent-length: 0\r\n\r\n")
    assert framing.complete
    assert not framing.keep_alive


@given(
    st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.lists(st.integers(0, 400), max_size=10), st.booleans()
)
def test_any_split_of_a_response_into_reads_gives_the_same_body(
    chunks: list[bytes], points: list[int], chunked: bool
) -> None:
    body = b"".join(chunks)
    if chunked:
        raw = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in chunks) + b"0\r\n\r\n"
    else:
        raw = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    edges = [0, *sorted(point % len(raw) for point in points), len(raw)]
    framing = ResponseFraming()
    found = [framing.feed(raw[start:end]) for start, end in itertools.pairwise(edges) if start < end]
    assert b"".join(found) == body
    assert framing.complete
    assert not framing.surplus
