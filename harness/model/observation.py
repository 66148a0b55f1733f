"""What one request did, as seen by the client. Times are integer nanoseconds of one monotonic clock; absent is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class FailureKind(StrEnum):
    """Every way in which a request can fail; each is a row, none is an exception."""

    CONNECT_REFUSED = "connect_refused"
    CONNECT_TIMEOUT = "connect_timeout"
    HTTP_STATUS = "http_status"
    NOT_A_STREAM = "not_a_stream"
    TIMEOUT = "timeout"
    RESET = "reset"
    BAD_HTTP = "bad_http"
    BAD_UTF8 = "bad_utf8"
    BAD_JSON = "bad_json"
    ERROR_EVENT = "error_event"
    EMPTY_SUCCESS = "empty_success"
    """HTTP 200, `[DONE]`, but neither content nor finish_reason: a load failure in disguise."""
    SHORT_STREAM = "short_stream"
    """The stream ended before `[DONE]`."""
    NO_FINISH = "no_finish"
    NO_USAGE = "no_usage"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The stream kept its contract: finish_reason, usage and `[DONE]`."""

    finish_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The request failed; stamps that exist are kept for diagnosis only."""

    kind: FailureKind
    detail: str


Outcome = Completed | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the server reported them, from the last usage object of the stream."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRead:
    """One read of the socket, stamped before any parsing.

    `at_ns` is the best arrival stamp (kernel where it exists), `user_ns` when the process got the bytes; both monotonic.
    """

    at_ns: int
    user_ns: int
    data: bytes
    kernel: bool = False


EventKind = Literal["role", "reasoning", "content", "tool", "finish", "usage", "done", "error", "ping", "empty", "sim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One SSE event as interpreted; a content chunk that also carries finish_reason has kind `content` and `finish_reason` set."""

    index: int
    at_ns: int
    user_ns: int
    read_index: int
    kind: EventKind
    text: str | None = None
    finish_reason: str | None = None
    completion_tokens: int | None = None
    """Cumulative `usage.completion_tokens` carried by this chunk, where the server sends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Monotonic nanoseconds of each stage; None = did not happen."""

    start_ns: int
    connect_start_ns: int | None = None
    connected_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    first_byte_ns: int | None = None
    role_ns: int | None = None
    first_reasoning_ns: int | None = None
    first_content_ns: int | None = None
    last_content_ns: int | None = None
    finish_ns: int | None = None
    usage_ns: int | None = None
    done_ns: int | None = None
    end_ns: int | None = None


StampSource = Literal["kernel", "callback", "httpx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """How far the client itself was from the truth during one request; None = not measured."""

    loop_lag_max_ns: int | None = None
    late_send_ns: int | None = None
    gc_pause_ns: int | None = None
    gc_frozen: bool | None = None
    cpu_steal_ns: int | None = None
    kernel_delay_max_ns: int | None = None
    kernel_delay_first_content_ns: int | None = None
    coalesced_reads: int | None = None
    clock_step_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The whole outcome of one request to one named replica."""

    replica: str
    url: str
    http_status: int | None
    stamps: Stamps
    stamp_source: StampSource
    outcome: Outcome
    usage: Usage | None
    content: str
    reasoning: str
    tool_calls: tuple[Mapping[str, object], ...] = ()
    events: tuple[StreamEvent, ...] = ()
    reads: tuple[tuple[int, int, int], ...] = ()
    """(at_ns, user_ns, nbytes) of every raw read."""
    connection_reused: bool = False
    body_sha256: str = ""
    """SHA-256 of the bytes handed to the socket."""
    health: ClientHealth = field(default_factory=ClientHealth)
    sim_missed: int | None = None
    """Deadlines that a simulated engine says it missed for this request; None on real engines."""
    sim_max_late_ns: int | None = None
    request_id: str | None = None

    @property
    def ok(self) -> bool:
        """True where the stream kept its contract."""
        return isinstance(self.outcome, Completed)
