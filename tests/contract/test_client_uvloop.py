"""The same contract on uvloop, where it touches the loop: connecting, large bodies, TLS, cancellation, time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest
import test_client_contract as contract
import trustme
import uvloop

from harness.client import ClientSettings
from harness.client.settings import TransportName

Story = Callable[..., Coroutine[object, object, None]]

PLAIN: tuple[Story, ...] = (
    contract.test_a_whole_stream_is_completed_with_all_its_parts,
    contract.test_the_body_is_sent_byte_for_byte_and_hashed,
    contract.test_a_connection_is_reused_where_declared,
    contract.test_a_kept_connection_that_the_server_closed_is_replaced_before_sending,
    contract.test_a_reset_in_mid_stream_is_a_failed_row_that_keeps_what_came,
    contract.test_a_stream_that_stalls_times_out_and_keeps_what_came,
    contract.test_cancelling_the_task_closes_the_connection_and_is_raised,
    contract.test_a_connection_that_does_not_come_up_times_out,
    contract.test_many_requests_at_once_do_not_mix,
)
ENCRYPTED: tuple[Story, ...] = (
    contract.test_tls_streams_are_read_and_stamped_alike,
    contract.test_tls_connections_are_reused_where_declared,
    contract.test_an_untrusted_certificate_is_no_connection,
)


@pytest.fixture(params=[contract.KERNEL, "callback", "httpx"])
def settings(request: pytest.FixtureRequest) -> ClientSettings:
    transport: TransportName = request.param
    return ClientSettings(transport=transport, connect_timeout_s=5, timeout_s=10)


def run(story: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story)


@pytest.mark.parametrize("story", PLAIN, ids=lambda story: story.__name__.removeprefix("test_"))
def test_on_uvloop(settings: ClientSettings, story: Story) -> None:
    run(story(settings))


@pytest.mark.parametrize("story", ENCRYPTED, ids=lambda story: story.__name__.removeprefix("test_"))
def test_on_uvloop_with_tls(settings: ClientSettings, story: Story) -> None:
    run(story(settings, trustme.CA()))
