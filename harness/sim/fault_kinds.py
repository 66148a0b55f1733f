"""Every fault that can be switched on: where it acts, what it does, its parameters and their defaults.

A table and not classes, because the documentation, the validation and `--help-faults` are all read from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a fault: its default, and what is allowed where that is a closed set."""

    default: Value
    allowed: tuple[str, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """What a fault is. `sides` says whose settings may carry it; `scope` what its selector counts."""

    summary: str
    sides: tuple[str, ...] = ("replica",)
    scope: str = "request"
    parameters: dict[str, Parameter] = field(default_factory=dict)


def _number(default: float, unit: str = "") -> Parameter:
    return Parameter(default=default, unit=unit)


def _choice(*allowed: str) -> Parameter:
    return Parameter(default=allowed[0], allowed=allowed)


BOTH = ("replica", "cache")

FAULTS: dict[str, FaultKind] = {
    "leak_block": FaultKind(
        summary="a request hits tokens that nobody should know: counted and skipped as if cached",
        parameters={"tokens": _number(16, "tokens"), "where": _choice("local", "external")},
    ),
    "ignore_salt": FaultKind(
        summary="the cache salt is left out of hashes: in the replica's own cache, in the shared tier, or both",
        sides=BOTH,
        scope="lookup",
        parameters={"where": _choice("local", "shared", "both")},
    ),
    "corrupt_transfer": FaultKind(
        summary="planted digits in transferred chunks change, token counts do not",
        sides=BOTH,
        scope="retrieve",
        parameters={"values": _number(0, "values, 0 = all")},
    ),
    "foreign_transfer": FaultKind(
        summary="transferred chunks hold what another namespace stored at the same place",
        sides=BOTH,
        scope="retrieve",
    ),
    "gibberish_transfer": FaultKind(summary="transferred chunks hold random tokens", sides=BOTH, scope="retrieve"),
    "shortfall": FaultKind(
        summary="the shared tier is asked for, or finds, fewer chunks than it holds",
        sides=BOTH,
        scope="lookup",
        parameters={"chunks": _number(1, "chunks, 0 = all")},
    ),
    "no_store": FaultKind(summary="nothing is stored in the shared tier", sides=BOTH, scope="store"),
    "evict": FaultKind(
        summary="cached blocks (replica) or chunks (cache) are evicted just before the look-up",
        sides=BOTH,
        scope="lookup",
        parameters={"count": _number(0, "blocks or chunks, 0 = all")},
    ),
    "dead_cache": FaultKind(
        summary="the cache service dies, or stops answering, at a retrieve or look-up",
        sides=("cache",),
        scope="retrieve",
        parameters={"mode": _choice("exit", "hang"), "at": _choice("retrieve", "lookup")},
    ),
    "load_failure": FaultKind(
        summary="a load fails in mid-stream as captured (200, role, usage with 0 tokens, [DONE]); the engine dies",
        parameters={"force": Parameter(default=False), "then": _choice("unhealthy", "exit")},
    ),
    "wrong_model_answer": FaultKind(summary="the first asked value is wrong, cold too"),
    "numeric_drift": FaultKind(summary="the first asked value is wrong on any reuse, local and external"),
    "wrong_prompt_tokens": FaultKind(summary="usage.prompt_tokens is off", parameters={"delta": _number(1, "tokens")}),
    "preempt": FaultKind(summary="a preemption is counted", parameters={"count": _number(1)}),
    "counter_lag": FaultKind(
        summary="/metrics publishes counters late", scope="process", parameters={"delay_s": _number(0.5, "s")}
    ),
    "empty_metrics": FaultKind(
        summary="/metrics answers 200 without a body, or a page that is no exposition",
        scope="process",
        parameters={"mode": _choice("empty", "html", "missing_external")},
    ),
    "restart": FaultKind(summary="after a request counters and cache are as after a restart, with a new start time"),
    "slow_start": FaultKind(
        summary="the process listens late, or answers /health with 503",
        sides=BOTH,
        scope="process",
        parameters={"delay_s": _number(1.0, "s"), "mode": _choice("no_listen", "health_503")},
    ),
    "fork_child": FaultKind(
        summary="a grandchild in its own session outlives the process and ignores SIGTERM",
        sides=BOTH,
        scope="process",
        parameters={"life_s": _number(30.0, "s")},
    ),
    "reset_lies": FaultKind(
        summary="/reset_prefix_cache lies or is missing",
        scope="process",
        parameters={"mode": _choice("true_noop", "false", "empty", "404")},
    ),
    "short_stream": FaultKind(
        summary="the stream ends after k deltas, without finish reason and [DONE]",
        parameters={"after": _number(3, "deltas"), "mode": _choice("clean", "cut")},
    ),
    "error_event": FaultKind(
        summary="an error object comes under HTTP 200, before or after k deltas, then [DONE]",
        parameters={
            "after": _number(3, "deltas, 0 = first"),
            "style": _choice("data", "event"),
            "code": _number(500),
        },
    ),
    "no_usage": FaultKind(summary="the usage chunk is missing"),
    "no_done": FaultKind(summary="`[DONE]` is missing"),
    "no_finish": FaultKind(summary="finish_reason stays null"),
    "slow_headers": FaultKind(summary="response headers come late", parameters={"delay_s": _number(0.2, "s")}),
    "drop_connection": FaultKind(
        summary="the connection is reset, before the headers or after k deltas",
        parameters={"after": _number(0, "deltas, 0 = before the headers")},
    ),
    "split_utf8": FaultKind(
        summary="every event is written in two parts, cut inside a multi-byte character where there is one",
        parameters={"gap_s": _number(0.002, "s")},
    ),
    "crlf": FaultKind(summary="lines end with CRLF"),
    "ping_comments": FaultKind(summary="comment lines `: ping` stand between events, in writes of their own"),
    "role_early": FaultKind(summary="the role chunk is sent before prefill begins"),
}
