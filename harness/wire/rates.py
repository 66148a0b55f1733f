"""Figures that follow from one observation's stamps and usage: absent in, absent out; never a chunk count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.model.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Timing figures of one request; ns of the client's clock, unscaled. None = cannot be said."""

    ttft_ns: int | None
    """first_content − start (experiment.md §4). Includes connect."""
    ttft_after_connect_ns: int | None
    """first_content − connected; another figure, hence another name."""
    connect_ns: int | None
    """connected − connect_start; None for a reused connection."""
    decode_window_ns: int | None
    """last_content − first_content."""
    decode_rate: float | None
    """(N_out − 1) / decode window, tokens/s, N_out from usage. None below 2 tokens, without usage, with a window of 0,
    and where reasoning was streamed (its tokens are in N_out, but not in the window)."""
    content_chunks: int
    """Non-empty content chunks. Not a number of tokens."""
    first_chunk_tokens: int | None
    """Tokens in the first content chunk by cumulative usage; None where the server does not say."""
    first_chunk_tokens_unknown: bool
    """True where there is content, but nothing says how many tokens its first chunk held (case TIM-2)."""
    coalesced_max: int
    """Most events, comments aside, that one read completed."""


def rates(observation: Observation) -> Rates:
    """All figures of one observation; pure, so they can be recomputed from stored stamps."""
    stamps = observation.stamps
    content = [event for event in observation.events if event.kind == "content"]
    first_tokens = content[0].completion_tokens if content else None
    return Rates(
        ttft_ns=_span(stamps.start_ns, stamps.first_content_ns),
        ttft_after_connect_ns=_span(stamps.connected_ns, stamps.first_content_ns),
        connect_ns=_span(stamps.connect_start_ns, stamps.connected_ns),
        decode_window_ns=_span(stamps.first_content_ns, stamps.last_content_ns),
        decode_rate=decode_rate(observation),
        content_chunks=len(content),
        first_chunk_tokens=first_tokens,
        first_chunk_tokens_unknown=bool(content) and first_tokens is None,
        coalesced_max=max(_events_per_read(observation).values(), default=0),
    )


def decode_rate(observation: Observation) -> float | None:
    """(N_out − 1) / (t_last − t_first) in tokens/s; see `Rates.decode_rate` for when it is None."""
    window = _span(observation.stamps.first_content_ns, observation.stamps.last_content_ns)
    if observation.usage is None or observation.reasoning or not window:
        return None
    tokens = observation.usage.completion_tokens
    return (tokens - 1) * 1e9 / window if tokens > 1 else None


def _events_per_read(observation: Observation) -> Counter[int]:
    return Counter(event.read_index for event in observation.events if event.kind != "ping")


def _span(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start
