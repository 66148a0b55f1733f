"""How long things take: ten physical parameters and pure formulas over them.

All parameters are seconds (or seconds per token, or per pair of tokens) at time scale 1. The scheduler charges
exactly these formulas, so `predict_ttft` is what a lone request shows at the client, to within noise.

Strategy: a prefill of m new tokens attends to `cached` tokens recovered from a cache and to the fresh tokens
before it. Both sums telescope, so cutting a prefill into chunks changes nothing in its total.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeParams:
    """The ten parameters. Units stand in each line; a missing one takes the value here (a fast small model)."""

    first_token_constant: float = 0.004
    """s: connection, parsing, sampling; once a request, outside the engine's batch."""
    host_per_prompt_token: float = 2e-7
    """s/token: template, tokenisation, hashing; every prompt token, cached or not."""
    connector_per_token: float = 2e-8
    """s/token: look-up work of the connector; every prompt token, connector on only."""
    prefill_per_token: float = 2e-5
    """s/token: linear layers, every token that is computed."""
    prefill_fresh_pair: float = 2e-10
    """s/pair: attention of a computed token to another token computed in the same request."""
    prefill_cached_pair: float = 2e-10
    """s/pair: attention of a computed token to a token recovered from a cache."""
    transfer_floor: float = 0.004
    """s: least time of a load from the shared tier (set-up and polling, overlapped with the copy)."""
    transfer_per_token: float = 2e-7
    """s/token: copy from the shared tier; the load takes the larger of this times tokens and the floor."""
    decode_step: float = 0.001
    """s/step: reading the weights once for the whole batch; one step yields a token for every member."""
    decode_per_context_token: float = 1e-9
    """s/token: reading the KV of the context, per step and per batch member."""


def frontend_seconds(p: TimeParams, n: int, *, connector: bool) -> float:
    """Time before a request of `n` prompt tokens can be scheduled, in s."""
    per_token = p.host_per_prompt_token + (p.connector_per_token if connector else 0.0)
    return p.first_token_constant + per_token * n


def transfer_seconds(p: TimeParams, tokens: int) -> float:
    """Time to load `tokens` from the shared tier, in s; nothing loaded costs nothing."""
    return max(p.transfer_floor, p.transfer_per_token * tokens) if tokens > 0 else 0.0


def prefill_seconds(p: TimeParams, new: int, *, cached: int, fresh: int = 0) -> float:
    """Time to compute `new` tokens behind `cached` recovered and `fresh` already computed tokens, in s."""
    fresh_pairs = new * fresh + new * new / 2
    return p.prefill_per_token * new + p.prefill_fresh_pair * fresh_pairs + p.prefill_cached_pair * new * cached


def decode_seconds(p: TimeParams, contexts: list[int], *, prefilled: int = 0) -> float:
    """Time that decoding adds to a step for members with these context lengths (tokens), in s.

    A step that also prefills has read the weights already: only what its `prefilled` tokens leave of
    `decode_step` is charged.
    """
    if not contexts:
        return 0.0
    weights = max(0.0, p.decode_step - p.prefill_per_token * prefilled)
    return weights + p.decode_per_context_token * sum(contexts)


def predict_ttft(p: TimeParams, n: int, local: int = 0, external: int = 0, *, connector: bool = False) -> float:
    """Time to first token of a lone request, in s at scale 1.

    `n` prompt tokens, of which `local` came from the replica's own cache and `external` from the shared tier.
    """
    cached = local + external
    front = frontend_seconds(p, n, connector=connector)
    return front + transfer_seconds(p, external) + prefill_seconds(p, n - cached, cached=cached)


def predict_decode(p: TimeParams, n: int, outputs: int) -> float:
    """Time from the first to the last of `outputs` tokens of a lone request, in s at scale 1."""
    return sum(decode_seconds(p, [n + i]) for i in range(1, outputs))


def nanoseconds(seconds: float, scale: float) -> int:
    """Whole nanoseconds of a modelled duration under a time scale."""
    return round(seconds * scale * 1e9)
