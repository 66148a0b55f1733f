"""The columns of every stored table: name, type, unit, meaning. The store writes them, analysis reads them, `docs/schema.md` is generated from them.

Types: `str`, `int` (64 bit), `float` (64 bit), `bool`, `list[str]`. Every column is nullable unless `required`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1

ColumnType = Literal["str", "int", "float", "bool", "list[str]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of one table."""

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    required: bool = False


def _c(name: str, type_: ColumnType, meaning: str, unit: str = "", *, required: bool = False) -> Column:
    return Column(name=name, type=type_, meaning=meaning, unit=unit, required=required)


_IDENTITY = (
    _c("screening", "str", "Name of the declaration.", required=True),
    _c("run", "str", "Id of the screening's folder.", required=True),
    _c("block", "int", "1-based position of the block.", required=True),
    _c("arm", "str", "Arm of the block.", required=True),
    _c(
        "plays",
        "str",
        "Arm the block stands for in comparisons; differs from `arm` in an A/A screening only.",
        required=True,
    ),
    _c("pair", "int", "1-based block pair.", required=True),
    _c("key", "str", "Key of the request within its pair: equal in both arms.", required=True),
)

REQUESTS: tuple[Column, ...] = (
    *_IDENTITY,
    _c("seq", "int", "Order within the block.", required=True),
    _c("warmup", "bool", "True for warm-ups; never in a statistic.", required=True),
    _c("workload", "str", "chains, sessions, generation, concurrency or warmup.", required=True),
    _c("unit", "str", "Matched unit the request belongs to.", required=True),
    _c("step", "str", "Step within the unit (cold, local-1, …, turn-6, hot).", required=True),
    _c("role", "str", "cold, local, cross, receiver_local, turn, hot, warmup.", required=True),
    _c("turn", "int", "0-based turn within a session, else 0.", required=True),
    _c("size", "str", "Label of the nominal size.", required=True),
    _c("nominal_tokens", "int", "Nominal prompt tokens of the unit's first body.", "tokens", required=True),
    _c("placement", "str", "fixed or alternating, null where there is none."),
    _c("window", "str", "Concurrency window, null outside windows."),
    _c("session", "int", "Index of the session within its cell or window."),
    _c("replica", "str", "Replica addressed.", required=True),
    _c("url", "str", "URL addressed."),
    _c("payload_id", "str", "Body sent.", required=True),
    _c("namespace", "str", "Namespace hash of the body."),
    _c("salt", "str", "cache_salt sent, null where none was."),
    _c("payload_sha256", "str", "SHA-256 of the bytes handed to the socket."),
    _c("payload_bytes", "int", "Length of the body.", "bytes"),
    _c("connection_reused", "bool", "False for a fresh connection."),
    _c("request_id", "str", "x-request-id sent with the request: RUN-BLOCK-SEQ, such as 20261201-080740-02-00013."),
    _c(
        "time_scale",
        "float",
        "Simulated time runs this much compressed: scaled seconds = ns / 1e9 / time_scale. 1.0 on real engines.",
        required=True,
    ),
    _c("stamp_source", "str", "kernel, callback or httpx: where arrival stamps come from."),
    _c("start_ns", "int", "Request initiation, before connect.", "ns monotonic"),
    _c("connect_start_ns", "int", "Connect began.", "ns monotonic"),
    _c("connected_ns", "int", "Connection (and TLS) ready.", "ns monotonic"),
    _c("sent_ns", "int", "Last byte of the body handed to the socket.", "ns monotonic"),
    _c("headers_ns", "int", "Read that completed the response headers.", "ns monotonic"),
    _c("first_byte_ns", "int", "First byte of the response.", "ns monotonic"),
    _c("role_ns", "int", "First role chunk.", "ns monotonic"),
    _c("first_reasoning_ns", "int", "First non-empty reasoning chunk.", "ns monotonic"),
    _c("first_content_ns", "int", "First non-empty content chunk.", "ns monotonic"),
    _c("last_content_ns", "int", "Last non-empty content chunk.", "ns monotonic"),
    _c("finish_ns", "int", "Chunk with finish_reason.", "ns monotonic"),
    _c("usage_ns", "int", "Last usage object.", "ns monotonic"),
    _c("done_ns", "int", "[DONE].", "ns monotonic"),
    _c("end_ns", "int", "End of the response.", "ns monotonic"),
    _c("recorded_ns", "int", "The row had been built; ends a turn's share of the session wall time.", "ns monotonic"),
    _c("ttft_ns", "int", "first_content_ns − start_ns; null without content, never 0.", "ns"),
    _c("ttft_after_connect_ns", "int", "first_content_ns − connected_ns.", "ns"),
    _c("connect_ns", "int", "connected_ns − connect_start_ns.", "ns"),
    _c(
        "decode_rate",
        "float",
        "(completion_tokens − 1) / (last_content − first_content), unscaled; null below 2 tokens or without usage.",
        "tokens/s",
    ),
    _c("content_chunks", "int", "Non-empty content chunks; not a token count.", "chunks"),
    _c("coalesced_max", "int", "Most events that shared one read.", "events"),
    _c("first_chunk_tokens", "int", "Tokens in the first content chunk, null where unknown.", "tokens"),
    _c("http_status", "int", "HTTP status."),
    _c("ok", "bool", "The stream kept its contract: finish_reason, usage and [DONE].", required=True),
    _c("failure_kind", "str", "Why it failed, null where ok."),
    _c("failure_detail", "str", "Words of the failure."),
    _c("finish_reason", "str", "As sent by the server."),
    _c("prompt_tokens", "int", "usage.prompt_tokens.", "tokens"),
    _c("completion_tokens", "int", "usage.completion_tokens.", "tokens"),
    _c("cached_tokens", "int", "usage.prompt_tokens_details.cached_tokens.", "tokens"),
    _c("planned_tokens", "int", "Prompt tokens counted when the fixture was built.", "tokens"),
    _c("max_tokens", "int", "Output limit sent.", "tokens"),
    _c("forced_tokens", "int", "Output tokens forced, null where not forced.", "tokens"),
    _c("check", "str", "exact, forced or none: the output check that applies.", required=True),
    _c(
        "answer_in_history",
        "bool",
        "The answer stands in the history: the check does not verify recovery.",
        required=True,
    ),
    _c(
        "verdict",
        "str",
        "correct, wrong, foreign, unparsable, drift, transfer_suspect, forced_ok, forced_wrong_length, unchecked; null where the request failed.",
    ),
    _c("expected", "str", "Expected answer as JSON."),
    _c("answer", "str", "Content as received (untrusted text)."),
    _c("answer_sha256", "str", "SHA-256 of the content."),
    _c("local_queries", "int", "Δ at the addressed replica.", "tokens"),
    _c("local_hits", "int", "Δ at the addressed replica.", "tokens"),
    _c("external_queries", "int", "Δ at the addressed replica; null where the series does not exist.", "tokens"),
    _c("external_hits", "int", "Δ at the addressed replica; null where the series does not exist.", "tokens"),
    _c("prompt_tokens_counted", "int", "Δ of the replica's prompt counter.", "tokens"),
    _c("computed_tokens", "int", "Δ of locally computed prompt tokens.", "tokens"),
    _c("preemptions", "int", "Δ over all replicas.", "events"),
    _c("pool_hit_tokens", "int", "Δ of the cache service's lookup hits.", "tokens"),
    _c("pool_loaded_chunks", "int", "Δ of chunks loaded from the cache service.", "chunks"),
    _c("pool_evicted_chunks", "int", "Δ of evicted chunks.", "chunks"),
    _c("expected_local_min", "int", "Least local hits allowed.", "tokens"),
    _c("expected_local_max", "int", "Most local hits allowed.", "tokens"),
    _c("expected_external_min", "int", "Least external hits allowed.", "tokens"),
    _c("expected_external_max", "int", "Most external hits allowed.", "tokens"),
    _c("hit_source", "str", "none, local, external, local+external, or unknown."),
    _c("loop_lag_max_ns", "int", "Largest event-loop lag seen during the request.", "ns"),
    _c("late_send_ns", "int", "Send later than intended.", "ns"),
    _c("gc_pause_ns", "int", "Garbage-collector time in the window.", "ns"),
    _c("gc_frozen", "bool", "Collector frozen and disabled in the window."),
    _c("cpu_steal_ns", "int", "CPU time stolen by the hypervisor in the window, all cores.", "ns"),
    _c("kernel_delay_max_ns", "int", "Largest delay between kernel arrival and the reader.", "ns"),
    _c("kernel_delay_first_content_ns", "int", "The same for the read of the first content.", "ns"),
    _c("coalesced_reads", "int", "Reads that held more than one segment's stamp.", "reads"),
    _c("clock_step_ns", "int", "Change of realtime − monotonic during the request.", "ns"),
    _c("client_limited", "str", "Which threshold made the row client-limited, null where none."),
    _c("sim_missed", "int", "Deadlines a simulated engine missed; null on real engines.", "events"),
    _c("sim_max_late_ns", "int", "Its largest lateness.", "ns"),
    _c("overhead_ns", "int", "Harness time outside the window: scrape, hash, row.", "ns"),
    _c("barrier_ns", "int", "Waiting for barriers, counted apart.", "ns"),
    _c("rules", "list[str]", "Rules that found something in this row."),
    _c("excluded", "str", "Rule that took the row's unit out of the estimate while measuring, null where none."),
)

CHUNKS: tuple[Column, ...] = (
    _c("block", "int", "1-based position of the block.", required=True),
    _c("pair", "int", "1-based block pair.", required=True),
    _c("key", "str", "Key of the request.", required=True),
    _c("event", "int", "Index of the SSE event.", required=True),
    _c("read", "int", "Index of the raw read that completed it.", required=True),
    _c("at_ns", "int", "Arrival stamp of that read.", "ns monotonic", required=True),
    _c("user_ns", "int", "When the process got that read.", "ns monotonic", required=True),
    _c("kind", "str", "role, reasoning, content, tool, finish, usage, done, error, ping, empty, sim.", required=True),
    _c("chars", "int", "Length of the text it carried.", "code points"),
    _c("completion_tokens", "int", "Cumulative usage carried, where the server sends it.", "tokens"),
    _c("finish_reason", "str", "Where the chunk carried one."),
)

COUNTERS: tuple[Column, ...] = (
    _c("block", "int", "1-based position of the block.", required=True),
    _c("pair", "int", "1-based block pair.", required=True),
    _c("key", "str", "Key of the request, or of the concurrency window.", required=True),
    _c("target", "str", "Replica or service that was read.", required=True),
    _c("counter", "str", "Project name of the counter.", required=True),
    _c("before", "float", "Value before the window."),
    _c("after", "float", "Value after the window."),
    _c("delta", "int", "Increment; null where reset or missing."),
    _c("status", "str", "increase, reset or missing.", required=True),
    _c("reason", "str", "Why missing."),
    _c("before_ns", "int", "When the first snapshot was read.", "ns monotonic"),
    _c("after_ns", "int", "When the second snapshot was read.", "ns monotonic"),
)

TABLES: dict[str, tuple[Column, ...]] = {"requests": REQUESTS, "chunks": CHUNKS, "counters": COUNTERS}
