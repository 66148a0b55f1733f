"""The simulator's own HTTP server and client, over loopback."""

import asyncio

import pytest

from harness.sim.clock import Clock
from harness.sim.http_client import CacheUnreachableError, HttpClient
from harness.sim.http_server import Server


@pytest.fixture
async def echo():
    seen = []

    async def handle(request, response):
        seen.append(request)
        if request.path == "/stream":
            response.start_stream(200, "text/plain")
            response.chunk(b"one")
            response.chunk(b"two")
            response.end_stream()
        elif request.path == "/fail":
            raise ValueError("broken handler")
        elif request.path == "/reset":
            response.close(reset=True)
        else:
            response.send(200, request.method.encode() + b" " + request.body, "text/plain")

    server = Server(handle)
    port = await server.start("127.0.0.1", 0)
    yield port, seen
    await server.stop()


async def talk(port, *pieces, until=None):
    """Send pieces one by one; what came back by the time the peer closed, or `until` was seen."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    data = await (reader.readuntil(until) if until else reader.read())
    writer.close()
    return data


REQUEST = (
    b"POST /x?a=1&b=two HTTP/1.1\r\nHost: h\r\nX-Name: Value\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
)


async def test_a_request_may_arrive_byte_by_byte(echo):
    port, seen = echo
    answer = await talk(port, *(REQUEST[i : i + 1] for i in range(len(REQUEST))))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"POST hello")
    assert (seen[0].path, seen[0].query, seen[0].headers["x-name"]) == ("/x", {"a": "1", "b": "two"}, "Value")


async def test_arrival_is_stamped_before_the_body_is_complete(echo):
    port, seen = echo
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST[:20])
    await asyncio.sleep(0.05)
    late = Clock.now()
    writer.write(REQUEST[20:])
    await reader.read()
    writer.close()
    assert seen[0].arrival_ns < late - 30_000_000


async def test_a_request_arrives_with_the_connection_that_was_opened_for_it(echo, monkeypatch):
    monkeypatch.setattr("harness.sim.http_server.CONNECT_NS", 10**9)
    port, seen = echo
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        await asyncio.sleep(0.05)
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        sent = Clock.now()
        await reader.readuntil(b"GET ")
        seen[-1].body = sent
    writer.close()
    assert seen[0].arrival_ns < seen[0].body - 30_000_000, "with the connection"
    assert seen[1].arrival_ns > seen[1].body, "by itself"


async def test_two_requests_in_one_write_are_answered_in_order(echo):
    one = b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"
    two = b"GET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    assert (await talk(echo[0], one + two)).count(b"HTTP/1.1 200") == 2
    assert [request.path for request in echo[1]] == ["/1", "/2"]


async def test_a_chunked_body_is_joined(echo):
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert (await talk(echo[0], head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")).endswith(b"POST abc")


async def test_a_client_that_asks_first_is_told_to_go_on(echo):
    head = REQUEST.replace(b"X-Name: Value", b"Expect: 100-continue").removesuffix(b"hello")
    assert (await talk(echo[0], head, until=b"\r\n\r\n")).startswith(b"HTTP/1.1 100 Continue")


async def test_what_is_no_http_is_refused(echo):
    assert (await talk(echo[0], b"\x00\x01 nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def test_a_stream_is_chunked_write_by_write(echo):
    answer = await talk(echo[0], b"GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


async def test_a_handler_that_breaks_costs_one_request_only(echo):
    answer = await talk(echo[0], b"GET /fail HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500")
    assert (await talk(echo[0], REQUEST)).startswith(b"HTTP/1.1 200")


async def test_a_reset_is_an_error_at_the_client_and_not_an_end(echo):
    with pytest.raises(ConnectionResetError):
        await talk(echo[0], b"GET /reset HTTP/1.1\r\nHost: h\r\n\r\n")


async def test_a_handler_learns_that_its_client_has_gone():
    waiting = asyncio.Queue()

    async def handle(request, _):
        waiting.put_nowait(request)
        await request.closed.wait()

    server = Server(handle)
    port = await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
    async with asyncio.timeout(5):
        request = await waiting.get()
        writer.close()
        await request.closed.wait()
    await server.stop()


async def test_the_client_keeps_its_connection(echo):
    client = HttpClient(f"http://127.0.0.1:{echo[0]}")
    replies = [await client.post("/x", b"a" * 100_000), await client.get("/y")]
    assert [len(reply.body) for reply in replies] == [100_005, 4]
    assert len(client._idle) == 1
    client.close()


async def test_the_client_says_when_nobody_listens():
    with pytest.raises(CacheUnreachableError):
        await HttpClient("http://127.0.0.1:9").get("/")


async def test_the_client_says_when_the_peer_hangs_up(echo):
    with pytest.raises(CacheUnreachableError):
        await HttpClient(f"http://127.0.0.1:{echo[0]}").get("/reset")
