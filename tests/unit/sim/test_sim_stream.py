"""Deltas, framing and stream faults, without a socket."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from harness.sim.api_request import ApiRequest
from harness.sim.api_response import Shape
from harness.sim.clock import Clock
from harness.sim.event_stream import EventStream, Tolerance, cut_point
from harness.sim.faults import ActiveFaults, FaultSpec
from harness.sim.generation import Output, Sampling
from harness.sim.reply import Reply
from harness.sim.settings import ReplicaSettings
from harness.sim.stamps import StampLog


class Wire:
    """Stands where the response is: remembers writes."""

    def __init__(self):
        self.writes, self.ending = [], None

    def chunk(self, data):
        self.writes.append(data)

    def end_stream(self):
        self.ending = "end"

    def close(self, *, reset=False):
        self.ending = "reset" if reset else "close"


def job(output, **fields):
    return SimpleNamespace(planned=output, size=100, cached=64, scale=1.0, **fields)


def output(*pieces, finish="stop", reasoning=0):
    return Output(list(range(len(pieces))), list(pieces), finish, reasoning=reasoning)


def make(wire, *, faults=(), messages=True, **settings):
    active = ActiveFaults([FaultSpec(**({"kind": f} if isinstance(f, str) else f)) for f in faults])
    stream = EventStream(
        wire, Clock(), StampLog(None), request_id="r", faults=active, tolerance=Tolerance(floor_ns=1_000_000)
    )
    api = ApiRequest(
        model="m",
        messages=[{}] if messages else None,
        sampling=Sampling(max_tokens=9),
        stream=True,
        include_usage=True,
        continuous_usage=settings.pop("continuous", False),
    )
    return Reply(api, Shape(chat=messages, model="m"), ReplicaSettings(**settings), active, stream), stream


async def play(planned, **options):
    wire = Wire()
    reply, _ = make(wire, **options)
    subject = job(planned)
    for index in range(len(planned.tokens)):
        reply.on_token(subject, index, 0)
    await reply.complete(subject)
    return wire


def events(wire):
    text = b"".join(wire.writes).decode().replace("\r\n", "\n")
    datas = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [d if d == "[DONE]" else json.loads(d) for d in datas]


def summary(wire):
    rows = []
    for event in events(wire):
        if event == "[DONE]":
            rows.append("done")
        elif "error" in event:
            rows.append("error")
        elif not event["choices"]:
            rows.append("usage")
        else:
            choice = event["choices"][0]
            delta = choice.get("delta", {"content": choice.get("text")})
            rows.append("role" if "role" in delta else (*delta.items(), choice["finish_reason"]))
    return rows


async def test_the_finish_reason_stands_in_the_last_content_chunk():
    wire = await play(output("a", "b", ""))
    assert summary(wire) == ["role", (("content", "a"), None), (("content", "b"), "stop"), "usage", "done"]


async def test_the_finish_reason_can_stand_in_a_chunk_of_its_own():
    wire = await play(output("a", "b", ""), finish="own_chunk")
    assert summary(wire)[2:4] == [(("content", "b"), None), (("content", ""), "stop")]


async def test_length_ends_with_the_last_token_itself():
    wire = await play(output("a", "b", finish="length"))
    assert summary(wire)[2] == (("content", "b"), "length")


async def test_tokens_can_be_merged_into_one_delta():
    wire = await play(output("a", "b", "c", "d", "e", finish="length"), tokens_per_chunk=2)
    assert [row[0][1] for row in summary(wire)[1:-2]] == ["ab", "cd", "e"]


async def test_a_token_without_text_waits_for_the_next():
    wire = await play(output("", "中", "x", finish="length"))
    assert [row[0][1] for row in summary(wire)[1:-2]] == ["中", "x"]


async def test_reasoning_is_sent_under_its_own_name():
    wire = await play(output("r", "a", finish="length", reasoning=1), reasoning_field="reasoning_content")
    assert summary(wire)[1:3] == [(("reasoning_content", "r"), None), (("content", "a"), "length")]


async def test_merged_deltas_never_mix_reasoning_and_content():
    wire = await play(output("r", "s", "t", "a", finish="length", reasoning=3), tokens_per_chunk=2)
    assert [row[0] for row in summary(wire)[1:-2]] == [("reasoning", "rs"), ("reasoning", "t"), ("content", "a")]


async def test_a_completion_has_no_role_chunk():
    wire = await play(output("a", finish="length"), messages=False)
    assert "role" not in summary(wire)


async def test_continuous_usage_counts_up():
    wire = await play(output("a", "b", finish="length"), continuous=True)
    assert [e["usage"]["completion_tokens"] for e in events(wire) if e != "[DONE]"] == [0, 1, 2, 2]


@pytest.mark.parametrize(("fault", "missing"), [("no_usage", "usage"), ("no_done", "done")])
async def test_a_missing_part_is_really_missing(fault, missing):
    assert missing not in summary(await play(output("a", ""), faults=[fault]))


async def test_no_finish_leaves_the_reason_null():
    assert summary(await play(output("a", ""), faults=["no_finish"]))[1] == (("content", "a"), None)


@pytest.mark.parametrize(("mode", "ending"), [("clean", "end"), ("cut", "close")])
async def test_a_short_stream_ends_after_k_deltas(mode, ending):
    wire = await play(output(*"abcde"), faults=[{"kind": "short_stream", "after": 2, "mode": mode}])
    whole = [row for row in b"".join(wire.writes).split(b"\n\n")[:-1] if b'"content":"' in row][1:]
    assert len(whole) == 2
    assert wire.ending == ending
    assert b"[DONE]" not in b"".join(wire.writes)


@pytest.mark.parametrize(("after", "before"), [(0, 0), (2, 3)])
async def test_an_error_event_comes_under_a_good_status_and_ends_the_stream(after, before):
    wire = await play(output(*"abcde"), faults=[{"kind": "error_event", "after": after}])
    assert summary(wire)[before:] == ["error", "done"]


async def test_an_error_can_be_a_named_event():
    wire = await play(output(*"abcde"), faults=[{"kind": "error_event", "style": "event"}])
    assert any(w.startswith(b"event: error\n") for w in wire.writes)


async def test_a_connection_can_be_reset_after_k_deltas():
    wire = await play(output(*"abcde"), faults=[{"kind": "drop_connection", "after": 2}])
    assert (wire.ending, len(wire.writes)) == ("reset", 3)


async def test_crlf_ends_every_line():
    wire = await play(output("a", ""), faults=["crlf"])
    assert all(w.endswith(b"\r\n\r\n") and b"\n" not in w.replace(b"\r\n", b"") for w in wire.writes)


async def test_pings_come_in_writes_of_their_own():
    wire = await play(output("a", ""), faults=["ping_comments"])
    assert wire.writes.count(b": ping\n\n") == len(events(wire))


async def test_split_writes_join_to_the_same_bytes_and_cut_characters():
    pieces = output("中", "x", finish="length")
    wire = await play(pieces, faults=[{"kind": "split_utf8", "gap_s": 0.0}])
    assert [row[0][1] for row in summary(wire)[1:-2]] == ["中", "x"]
    with pytest.raises(UnicodeDecodeError):
        [w.decode() for w in wire.writes]


def test_the_cut_lies_inside_a_character_where_there_is_one():
    assert cut_point("ab中".encode()) == 3
    assert cut_point(b"abcd") == 2


async def test_a_wrong_prompt_count_is_off_by_its_delta():
    wire = await play(output("a", ""), faults=["wrong_prompt_tokens"])
    assert events(wire)[-2]["usage"]["prompt_tokens"] == 101


async def test_a_missed_deadline_is_told_with_the_usage():
    wire = Wire()
    reply, _ = make(wire)
    planned = output("a", "b", finish="length")
    now = Clock.now()
    reply.on_token(job(planned), 0, now)
    reply.on_token(job(planned), 1, now - 50_000_000)
    await reply.complete(job(planned))
    told = events(wire)[-2]["sim"]
    assert told["missed"] == 1
    assert told["max_late_ns"] >= 50_000_000
    assert told["time_scale"] == 1.0


async def test_a_failed_load_looks_as_it_was_captured():
    wire = Wire()
    reply, _ = make(wire)
    await reply.load_failed(job(output("a", "")))
    assert summary(wire) == ["role", "usage", "done"]
    usage = events(wire)[1]["usage"]
    assert (usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (0, 0)


async def test_stamps_are_written_when_idle_and_not_before(tmp_path):
    log = StampLog(tmp_path / "stamps.jsonl")
    stamp = log.add("r", 0, "role", 5)
    log.flush(idle=False)
    assert (tmp_path / "stamps.jsonl").read_bytes() == b""
    log.flush()
    row = json.loads((tmp_path / "stamps.jsonl").read_bytes())
    assert (row["request_id"], row["event"], row["kind"], row["mono_ns"], row["due_ns"]) == ("r", 0, "role", stamp, 5)
    assert row["real_ns"] > 10**18


async def test_the_clock_wakes_in_order_of_deadline_and_never_early():
    clock, order = Clock(), []
    base = clock.now()

    async def sleeper(name, after_ns):
        await clock.until(base + after_ns)
        order.append((name, clock.now() >= base + after_ns))

    await asyncio.gather(sleeper("late", 9_000_000), sleeper("soon", 2_000_000), sleeper("past", -5))
    clock.close()
    assert order == [("past", True), ("soon", True), ("late", True)]


async def test_a_cancelled_alarm_stays_silent():
    clock, rung = Clock(), []
    clock.call_at(clock.now() + 1_000_000, lambda: rung.append("cancelled")).cancel()
    await clock.until(clock.now() + 3_000_000)
    clock.close()
    assert rung == []


def test_a_chunk_may_be_late_by_its_share_of_the_time_since_arrival():
    tolerance = Tolerance(floor_ns=2_000_000, share=0.02, arrival_ns=1_000_000_000)
    assert not tolerance.missed(due_ns=2_000_000_000, late_ns=20_000_000)
    assert tolerance.missed(due_ns=2_000_000_000, late_ns=20_000_001)


def test_a_chunk_due_at_once_may_be_late_by_the_floor():
    tolerance = Tolerance(floor_ns=2_000_000, share=0.02, arrival_ns=1_000_000_000)
    assert not tolerance.missed(due_ns=1_010_000_000, late_ns=2_000_000)
    assert tolerance.missed(due_ns=1_010_000_000, late_ns=2_000_001)
