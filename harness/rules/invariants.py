"""What must add up for one isolated request (interfaces.md §6). One function a rule; None inputs prove nothing."""

from __future__ import annotations

from harness.model.counting import Counter, Missing, Reset
from harness.model.findings import Finding
from harness.rules.expect import external_hits, floor_to
from harness.rules.facts import RequestWindow, required, summed, was_idle


def counter_reset(window: RequestWindow) -> list[Finding]:
    """`counter.reset`: no counter of any target may go backwards inside a window."""
    return [
        window.found(
            "counter.reset",
            f"{window.request.key}: {counter} of {target} went from {delta.before:,.0f} to {delta.after:,.0f}",
            target=target,
            counter=str(counter),
        )
        for target in window.targets
        for counter, delta in window.counters.deltas.get(target, {}).items()
        if isinstance(delta, Reset)
    ]


def counter_missing(window: RequestWindow) -> list[Finding]:
    """`counter.missing`: every counter that the arm needs is exposed by every replica; absent is not zero."""
    nothing = Missing(reason="the target was not read")
    return [
        window.found(
            "counter.missing",
            f"{window.request.key}: {counter} of {replica} is missing: {delta.reason}",
            target=replica,
            counter=str(counter),
        )
        for replica in window.replicas
        for counter in required(window.engine, window.arm)
        if isinstance(delta := window.counters.deltas.get(replica, {}).get(counter, nothing), Missing)
    ]


def invariant_queries(window: RequestWindow) -> list[Finding]:
    """`invariant.queries`: Δ local queries = n = usage.prompt_tokens."""
    queries, n = window.here(Counter.LOCAL_QUERIES), window.n
    if queries is None or n is None or queries == n or not window.observation.ok:
        return []
    if queries < n:
        return [_lag(window, f"local queries stand at {queries:,} of {n:,}")]
    detail = f"{window.request.key}: {queries:,} local queries for {n:,} prompt tokens on {window.request.replica}"
    return [window.found("invariant.queries", detail, queries=queries, prompt_tokens=n)]


def invariant_prompt_tokens(window: RequestWindow) -> list[Finding]:
    """`invariant.prompt_tokens`: Δ prompt_tokens = usage.prompt_tokens."""
    counted, n = window.here(Counter.PROMPT_TOKENS), window.n
    if counted is None or n is None or counted == n or not window.observation.ok:
        return []
    if counted < n:
        return [_lag(window, f"the prompt counter stands at {counted:,} of {n:,}")]
    detail = (
        f"{window.request.key}: usage says {n:,} prompt tokens, the counter of {window.request.replica} {counted:,}"
    )
    return [window.found("invariant.prompt_tokens", detail, counted=counted, prompt_tokens=n)]


def invariant_planned_tokens(window: RequestWindow) -> list[Finding]:
    """`invariant.planned_tokens`: usage.prompt_tokens = the count the fixture was built with, exactly."""
    n, planned = window.n, window.payload.prompt_tokens
    if n is None or n == planned or not window.observation.ok:
        return []
    detail = f"{window.request.key}: {n:,} prompt tokens counted by the server, {planned:,} planned ({n - planned:+,})"
    return [window.found("invariant.planned_tokens", detail, prompt_tokens=n, planned=planned)]


def invariant_local_range(window: RequestWindow) -> list[Finding]:
    """`invariant.local_range`: 0 ≤ H_local ≤ n-1; not hybrid: a multiple of bs, at most floor((n-1)/bs)*bs."""
    hits, n, block = window.here(Counter.LOCAL_HITS), window.n, window.engine.block_size
    if hits is None or n is None or not window.observation.ok:
        return []
    most = n - 1 if window.engine.hybrid else floor_to(n - 1, block)
    if 0 <= hits <= most and (window.engine.hybrid or hits % block == 0):
        return []
    detail = f"{window.request.key}: {hits:,} local hits of {n:,} tokens with blocks of {block:,}"
    return [window.found("invariant.local_range", detail, hits=hits, prompt_tokens=n, block_size=block)]


def invariant_external_queries(window: RequestWindow) -> list[Finding]:
    """`invariant.external_queries`: with a tier Δ external queries = n - H_local (or n, by version), hits ≤ queries.

    Without a tier both are 0; a series that does not exist there is null and proves nothing.
    """
    queries, hits = window.here(Counter.EXTERNAL_QUERIES), window.here(Counter.EXTERNAL_HITS)
    n, local = window.n, window.here(Counter.LOCAL_HITS)
    if queries is None or n is None or local is None or not window.observation.ok:
        return []
    asked = n if window.engine.external_queries == "n" else n - local
    wanted = 0 if window.arm.reach == "none" else asked
    if queries == wanted and (hits or 0) <= queries:
        return []
    detail = (
        f"{window.request.key}: {queries:,} external queries and {hits or 0:,} hits on {window.request.replica},"
        f" expected {wanted:,} queries for {n:,} prompt tokens with {local:,} local hits"
    )
    return [window.found("invariant.external_queries", detail, queries=queries, expected=wanted, prompt_tokens=n)]


def invariant_sources(window: RequestWindow) -> list[Finding]:
    """`invariant.sources`: computed + local + external = n."""
    computed, n = window.here(Counter.COMPUTED_TOKENS), window.n
    local, external = window.here(Counter.LOCAL_HITS), window.here(Counter.EXTERNAL_HITS) or 0
    if computed is None or n is None or local is None or not window.observation.ok:
        return []
    if computed + local + external == n:
        return []
    detail = f"{window.request.key}: {computed:,} computed + {local:,} local + {external:,} external ≠ {n:,}"
    return [window.found("invariant.sources", detail, computed=computed, local=local, external=external)]


def invariant_cached_tokens(window: RequestWindow) -> list[Finding]:
    """`invariant.cached_tokens`: usage.cached_tokens = H_local + H_ext. A server may leave it out where both are 0."""
    usage, local = window.observation.usage, window.here(Counter.LOCAL_HITS)
    if usage is None or local is None or not window.observation.ok:
        return []
    counted = local + (window.here(Counter.EXTERNAL_HITS) or 0)
    if usage.cached_tokens == counted or (usage.cached_tokens is None and counted == 0):
        return []
    said = "nothing" if usage.cached_tokens is None else f"{usage.cached_tokens:,}"
    detail = f"{window.request.key}: usage reports {said} cached, the counters {counted:,}"
    return [window.found("invariant.cached_tokens", detail, reported=usage.cached_tokens, counted=counted)]


def invariant_preemption(window: RequestWindow) -> list[Finding]:
    """`invariant.preemption`: Δ preemptions over all replicas is 0."""
    count = summed(window.counters, window.replicas, Counter.PREEMPTIONS)
    if not count:
        return []
    return [window.found("invariant.preemption", f"{window.request.key}: {count} preemption(s)", count=count)]


def invariant_chunk_arithmetic(window: RequestWindow) -> list[Finding]:
    """`invariant.chunk_arithmetic`: with c = the pool's lookup hit, H_ext = max(0, c - H_local), less 1 where c = n."""
    pool, n = window.pooled(Counter.POOL_HIT_TOKENS), window.n
    hits, local = window.here(Counter.EXTERNAL_HITS), window.here(Counter.LOCAL_HITS)
    if pool is None or n is None or hits is None or local is None or not window.observation.ok:
        return []
    chunk = window.engine.chunk_size or window.engine.block_size
    wanted = external_hits(pool, local, n)
    if hits == wanted and pool % chunk == 0:
        return []
    detail = (
        f"{window.request.key}: the pool found {pool:,} tokens (chunks of {chunk:,}) and {local:,} were local, so"
        f" {wanted:,} external hits follow; {hits:,} were counted"
    )
    return [window.found("invariant.chunk_arithmetic", detail, pool_hit=pool, local=local, hits=hits, expected=wanted)]


def invariant_idle_replica(window: RequestWindow) -> list[Finding]:
    """`invariant.idle_replica`: a replica that was not addressed did no work in the window."""
    return [
        window.found(
            "invariant.idle_replica", f"{window.request.key} went to {window.request.replica}, but {other} worked"
        )
        for other in window.replicas
        if other != window.request.replica and not was_idle(window.counters, other)
    ]


def _lag(window: RequestWindow, words: str) -> Finding:
    detail = f"{window.request.key} on {window.request.replica}: {words} when the barrier gave up"
    return window.found("counter.lag", detail)
