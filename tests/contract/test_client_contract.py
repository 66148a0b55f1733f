"""What every transport of the client does alike: the custom one with kernel and with call-back stamps, and httpx's."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

import httpx
import pytest
import trustme
from fakes_client import (
    ANSWER,
    CHUNKED,
    DONE,
    END,
    EVENTS,
    HEAD,
    STREAM,
    Peer,
    Server,
    answer,
    answer_and_close,
    chunk,
    content,
    serve,
    usage,
)

from harness.client import Call, ClientSettings, ReplicaClient, open_client
from harness.client.reader import stamps_available
from harness.client.settings import TransportName
from harness.client.transport import StampingTransport
from harness.model.observation import Completed, Failed, FailureKind, Observation
from harness.wire.rates import rates

KERNEL = pytest.param(
    "kernel", marks=pytest.mark.skipif(not stamps_available(), reason="no kernel stamps on this machine")
)
BODY = b'{"model":"m","stream":true}'


@pytest.fixture(params=[KERNEL, "callback", "httpx"])
def transport(request: pytest.FixtureRequest) -> TransportName:
    return request.param


@pytest.fixture
def settings(transport: TransportName) -> ClientSettings:
    return ClientSettings(transport=transport, connect_timeout_s=5, timeout_s=10)


def call_to(server: Server, **changes: object) -> Call:
    call = Call(replica="A", url=server.url, path="/v1/chat/completions", body=BODY, request_id="r1")
    return replace(call, **changes)


@asynccontextmanager
async def client_of(settings: ClientSettings) -> AsyncIterator[ReplicaClient]:
    async with open_client(settings) as client:
        yield client


def kind_of(observation: Observation) -> FailureKind | None:
    return observation.outcome.kind if isinstance(observation.outcome, Failed) else None


async def test_a_whole_stream_is_completed_with_all_its_parts(settings: ClientSettings) -> None:
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert seen.outcome == Completed(finish_reason="stop")
    assert seen.content == ANSWER
    assert seen.usage is not None
    assert seen.usage.completion_tokens == 3
    assert (seen.http_status, seen.replica, seen.request_id, seen.url) == (200, "A", "r1", server.url)


async def test_stamps_stand_in_the_order_of_what_happened(settings: ClientSettings) -> None:
    before = time.monotonic_ns()
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    stamps = seen.stamps
    order = [
        before,
        stamps.start_ns,
        stamps.connect_start_ns,
        stamps.connected_ns,
        stamps.sent_ns,
        stamps.headers_ns,
        stamps.role_ns,
        stamps.first_content_ns,
        stamps.last_content_ns,
        stamps.usage_ns,
        stamps.done_ns,
        stamps.end_ns,
        time.monotonic_ns(),
    ]
    assert None not in order
    assert order == sorted(order)


async def test_the_source_of_the_stamps_is_recorded(settings: ClientSettings) -> None:
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert seen.stamp_source == settings.transport
    assert (seen.health.kernel_delay_max_ns is not None) == (settings.transport == "kernel")


async def test_the_body_is_sent_byte_for_byte_and_hashed(settings: ClientSettings) -> None:
    body = b'{"big":"' + bytes(range(97, 123)) * 80_000 + b'"}'
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server, body=body))
    assert server.requests[0][1] == body
    assert seen.body_sha256 == hashlib.sha256(body).hexdigest()
    assert seen.ok


async def test_a_call_that_was_prepared_beforehand_sends_and_hashes_the_same(settings: ClientSettings) -> None:
    body = b'{"big":"' + bytes(range(97, 123)) * 80_000 + b'"}'
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        prepared = client.prepare(call_to(server, body=body))
        assert not server.requests
        seen = client.observe(await client.exchange(prepared))
        await client.send(call_to(server, body=body))
    assert server.requests[0] == server.requests[1]
    assert seen.body_sha256 == hashlib.sha256(body).hexdigest()
    assert seen.ok


async def test_headers_name_the_request_and_ask_for_an_uncompressed_stream(settings: ClientSettings) -> None:
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        await client.send(call_to(server, headers={"X-Extra": "yes"}))
    head = server.requests[0][0].lower()
    assert head.startswith(b"post /v1/chat/completions http/1.1\r\n")
    for line in (b"x-request-id: r1", b"x-extra: yes", b"accept-encoding: identity", b"content-type: application/json"):
        assert line in head


async def test_a_response_in_single_bytes_decodes_alike(settings: ClientSettings) -> None:
    async def drip(peer: Peer) -> None:
        for index in range(len(STREAM)):
            await peer.send(STREAM[index : index + 1])

    async with serve(drip) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert seen.ok
    assert seen.content == ANSWER


async def test_three_events_in_one_chunk_share_a_stamp_and_are_counted(settings: ClientSettings) -> None:
    three = chunk(content("a") + content("b") + content("c", "stop"))
    async with serve(answer(CHUNKED + three + chunk(usage(3) + DONE) + END)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    texts = [event.at_ns for event in seen.events if event.kind == "content"]
    assert len(texts) == 3
    assert len(set(texts)) == 1
    assert rates(seen).coalesced_max >= 3
    assert seen.health.coalesced_reads == 1


async def test_a_new_connection_is_made_for_every_request_where_declared(settings: ClientSettings) -> None:
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        seen = [await client.send(call_to(server)) for _ in range(2)]
        await server.all_closed.wait()
    assert server.connections == 2
    assert [one.connection_reused for one in seen] == [False, False]
    assert b"connection: close" in server.requests[0][0].lower()


async def test_a_connection_is_reused_where_declared(settings: ClientSettings) -> None:
    async with serve(answer(STREAM)) as server, client_of(replace(settings, connection="reused")) as client:
        first, second = [await client.send(call_to(server)) for _ in range(2)]
    assert server.connections == 1
    assert (first.connection_reused, second.connection_reused) == (False, True)
    assert second.stamps.connected_ns is None
    assert second.content == ANSWER


async def test_a_kept_connection_that_the_server_closed_is_replaced_before_sending(settings: ClientSettings) -> None:
    async with serve(answer_and_close(STREAM)) as server, client_of(replace(settings, connection="reused")) as client:
        first = await client.send(call_to(server))
        await server.all_closed.wait()
        second = await client.send(call_to(server))
    assert first.ok
    assert second.ok
    assert not second.connection_reused
    assert len(server.requests) == 2


async def test_bytes_nobody_asked_for_are_never_taken_for_an_answer(settings: ClientSettings) -> None:
    async with (
        serve(answer(STREAM + b"HTTP/1.1 200 OK\r\n")) as server,
        client_of(replace(settings, connection="reused")) as client,
    ):
        first = await client.send(call_to(server))
        second = await client.send(call_to(server))
    assert first.ok
    if settings.transport == "httpx":  # it reuses the connection and finds the rubbish: a failed row
        assert second.ok or kind_of(second) in (FailureKind.BAD_HTTP, FailureKind.RESET)
    else:
        assert second.ok
        assert server.connections == 2


async def test_a_failed_request_is_never_sent_again(settings: ClientSettings) -> None:
    async with serve(answer_and_close(b"")) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert kind_of(seen) is FailureKind.RESET
    assert len(server.requests) == 1


async def test_a_reset_in_mid_stream_is_a_failed_row_that_keeps_what_came(settings: ClientSettings) -> None:
    got = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED + chunk(content("a")))
        await got.wait()
        peer.reset()

    async with serve(script) as server, client_of(settings) as client:
        sending = asyncio.create_task(client.send(call_to(server)))
        while not server.requests:  # noqa: ASYNC110 - until the request is there
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # let the first chunk be read before the reset discards it
        got.set()
        seen = await sending
    assert kind_of(seen) is FailureKind.RESET
    assert seen.content == "a"


async def test_an_early_end_is_a_short_stream(settings: ClientSettings) -> None:
    async with serve(answer_and_close(CHUNKED + chunk(content("a")))) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert kind_of(seen) is FailureKind.SHORT_STREAM
    assert seen.content == "a"
    assert seen.stamps.first_content_ns is not None


async def test_a_short_body_is_a_short_stream(settings: ClientSettings) -> None:
    head = HEAD + b"content-length: 10000\r\n\r\n"
    async with serve(answer_and_close(head + content("a"))) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert kind_of(seen) is FailureKind.SHORT_STREAM


async def test_slow_headers_are_stamped_when_they_are_complete(settings: ClientSettings) -> None:
    completed_at = 0

    async def script(peer: Peer) -> None:
        nonlocal completed_at
        await peer.send(STREAM[:20])
        await asyncio.sleep(0.03)
        completed_at = time.monotonic_ns()
        await peer.send(STREAM[20:])

    async with serve(script) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert seen.ok
    assert seen.stamps.headers_ns is not None
    assert seen.stamps.headers_ns >= completed_at
    if seen.stamps.first_byte_ns is not None:
        assert seen.stamps.first_byte_ns < completed_at


async def test_a_body_that_ends_with_the_connection_is_complete(settings: ClientSettings) -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    async with serve(answer_and_close(head + b"".join(EVENTS))) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert seen.ok
    assert seen.content == ANSWER


async def test_a_body_with_a_length_is_complete(settings: ClientSettings) -> None:
    body = b"".join(EVENTS)
    async with (
        serve(answer(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)) as server,
        client_of(settings) as client,
    ):
        seen = await client.send(call_to(server))
    assert seen.ok


async def test_chunk_extensions_and_trailers_are_framing_and_not_content(settings: ClientSettings) -> None:
    body = b"".join(EVENTS)
    raw = CHUNKED + b"%x;ext=1\r\n%b\r\n0\r\nx-trailer: data: no\r\n\r\n" % (len(body), body)
    async with serve(answer(raw)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert seen.ok
    assert seen.content == ANSWER


async def test_an_interim_response_is_skipped(settings: ClientSettings) -> None:
    async with serve(answer(b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert (seen.http_status, seen.ok) == (200, True)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b'{"error":{"message":"no such model","type":"NotFoundError","code":404}}', "no such model"),
        (503, b"engine dead", "engine dead"),
        (422, b'{"detail":"bad field"}', "bad field"),
    ],
)
async def test_an_error_status_carries_the_words_of_the_server(
    settings: ClientSettings, status: int, body: bytes, words: str
) -> None:
    raw = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
    async with serve(answer(raw)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert isinstance(seen.outcome, Failed)
    assert seen.outcome.kind is FailureKind.HTTP_STATUS
    assert words in seen.outcome.detail
    assert seen.http_status == status


async def test_a_200_that_is_no_event_stream_is_named(settings: ClientSettings) -> None:
    raw = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"choices":0}'
    async with serve(answer(raw)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert kind_of(seen) is FailureKind.NOT_A_STREAM
    assert seen.stamps.first_content_ns is None


async def test_an_answer_that_is_no_http_is_named(settings: ClientSettings) -> None:
    async with serve(answer_and_close(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert kind_of(seen) is FailureKind.BAD_HTTP


async def test_a_server_that_never_answers_times_out(settings: ClientSettings) -> None:
    async with serve(Peer.gone) as server, client_of(settings) as client:
        seen = await client.send(call_to(server, timeout_s=0.1))
        await server.all_closed.wait()
    assert kind_of(seen) is FailureKind.TIMEOUT


async def test_a_stream_that_stalls_times_out_and_keeps_what_came(settings: ClientSettings) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED + chunk(content("a")))
        await peer.gone()

    async with serve(script) as server, client_of(settings) as client:
        seen = await client.send(call_to(server, timeout_s=0.2))
    assert kind_of(seen) is FailureKind.TIMEOUT
    assert seen.content == "a"


async def test_a_refused_connection_is_named(settings: ClientSettings) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(url=f"http://127.0.0.1:{free.getsockname()[1]}")
        async with client_of(settings) as client:
            seen = await client.send(call_to(server))
    assert kind_of(seen) is FailureKind.CONNECT_REFUSED
    assert seen.stamps.connected_ns is None
    assert seen.http_status is None


async def test_a_connection_that_does_not_come_up_times_out(settings: ClientSettings) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # nobody accepts: the kernel drops what does not fit into the backlog
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        server = Server(url=f"http://127.0.0.1:{full.getsockname()[1]}")
        async with client_of(replace(settings, connect_timeout_s=0.2)) as client:
            seen = await client.send(call_to(server))
        for filler in fillers:
            filler.close()
    assert kind_of(seen) is FailureKind.CONNECT_TIMEOUT


async def test_cancelling_the_task_closes_the_connection_and_is_raised(settings: ClientSettings) -> None:
    async with serve(Peer.gone) as server, client_of(settings) as client:
        sending = asyncio.create_task(client.send(call_to(server)))
        while not server.requests:  # noqa: ASYNC110 - until the request is there
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(server.all_closed.wait(), 5)


async def test_the_cancel_event_closes_the_connection_and_gives_a_row(settings: ClientSettings) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED + chunk(content("a")))
        await peer.gone()

    cancel = asyncio.Event()
    async with serve(script) as server, client_of(settings) as client:
        sending = asyncio.create_task(client.send(call_to(server, cancel=cancel)))
        while not server.requests:  # noqa: ASYNC110 - until the request is there
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        cancel.set()
        seen = await sending
        await asyncio.wait_for(server.all_closed.wait(), 5)
    assert kind_of(seen) is FailureKind.CANCELLED
    assert seen.content == "a"


async def test_many_requests_at_once_do_not_mix(settings: ClientSettings) -> None:
    async def echo(peer: Peer) -> None:
        name = peer.body.decode()
        events = (content(name), content("", "stop"), usage(1), DONE)
        await peer.send(CHUNKED)
        for one in events:
            await peer.send(chunk(one))
            await asyncio.sleep(0)
        await peer.send(END)

    async with serve(echo) as server, client_of(settings) as client:
        seen = await asyncio.gather(*(client.send(call_to(server, body=b"%d" % index)) for index in range(24)))
    assert [one.content for one in seen] == [str(index) for index in range(24)]
    assert all(one.ok for one in seen)


async def test_proxies_of_the_environment_are_ignored(
    settings: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        assert (await client.send(call_to(server))).ok


async def test_a_request_that_is_due_later_waits_and_records_how_late_it_was(settings: ClientSettings) -> None:
    due = time.monotonic_ns() + 30_000_000
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server, due_ns=due))
    assert seen.stamps.start_ns >= due
    assert seen.health.late_send_ns is not None
    assert seen.health.late_send_ns >= seen.stamps.start_ns - due


async def test_an_url_without_a_known_scheme_is_a_failed_row(settings: ClientSettings) -> None:
    async with client_of(settings) as client:
        seen = await client.send(call_to(Server(url="ftp://127.0.0.1:1")))
    assert kind_of(seen) is not None
    assert seen.stamps.start_ns > 0


@pytest.mark.parametrize("stamps", [KERNEL, "callback"])
async def test_the_transport_serves_an_ordinary_httpx_client(stamps: Literal["kernel", "callback"]) -> None:
    transport = StampingTransport(ClientSettings(), stamps=stamps)
    async with serve(answer(STREAM)) as server, httpx.AsyncClient(transport=transport, trust_env=False) as http:
        response = await http.post(server.url, content=BODY)
        assert response.status_code == 200
        assert response.content == b"".join(EVENTS)
    again = StampingTransport(ClientSettings(), stamps=stamps)
    async with serve(answer_and_close(b"")) as server, httpx.AsyncClient(transport=again, trust_env=False) as http:
        with pytest.raises(httpx.ReadError):
            await http.get(server.url)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


async def test_tls_streams_are_read_and_stamped_alike(settings: ClientSettings, authority: trustme.CA) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with (
        serve(answer(STREAM), server_context(authority)) as server,
        client_of(replace(settings, ssl_context=trusting)) as client,
    ):
        seen = await client.send(call_to(server))
    assert seen.ok
    assert seen.content == ANSWER
    assert seen.stamp_source == settings.transport


async def test_tls_connections_are_reused_where_declared(settings: ClientSettings, authority: trustme.CA) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with (
        serve(answer(STREAM), server_context(authority)) as server,
        client_of(replace(settings, ssl_context=trusting, connection="reused")) as client,
    ):
        seen = [await client.send(call_to(server)) for _ in range(3)]
    assert all(one.ok for one in seen)
    assert server.connections == 1


async def test_an_untrusted_certificate_is_no_connection(settings: ClientSettings, authority: trustme.CA) -> None:
    async with serve(answer(STREAM), server_context(authority)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert kind_of(seen) is FailureKind.CONNECT_REFUSED


async def test_tim_1_a_slow_decoder_does_not_move_a_stamp(
    settings: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.wire import chat  # noqa: PLC0415 - patched here only

    quick, decoding_began = chat.read_chunk, []

    def slow(data: str) -> object:
        decoding_began.append(time.monotonic_ns())
        time.sleep(0.02)
        return quick(data)

    monkeypatch.setattr(chat, "read_chunk", slow)
    async with serve(answer(STREAM)) as server, client_of(settings) as client:
        seen = await client.send(call_to(server))
    assert seen.stamps.end_ns is not None
    assert seen.stamps.end_ns < decoding_began[0]
