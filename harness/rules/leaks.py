"""Leaks: more hits than the request can have. Each function is one rule of the rulebook."""

from __future__ import annotations

from harness.model.counting import Counter
from harness.model.findings import Finding
from harness.rules.expect import total_range
from harness.rules.facts import RequestWindow

_WARM_ROLES = {
    "local": "local reuse",
    "cross": "cross-replica",
    "receiver_local": "receiver-local",
    "turn": "session",
    "hot": "hot",
}


def leak_local(window: RequestWindow) -> list[Finding]:
    """`leak.local`: H_local ≤ the most that earlier requests of this namespace can have put on this replica."""
    hits, most = window.here(Counter.LOCAL_HITS), window.expectation.local_max
    if hits is None or hits <= most or not _can_judge(window):
        return []
    detail = (
        f"{role_words(window)} request {window.request.key} hit {hits:,} local tokens on {window.request.replica}"
        f" of {window.n_or_planned:,}; at most {most:,} were possible. Likely cause: {local_cause(window, hits)}"
    )
    return [window.found("leak.local", detail, hits=hits, allowed=most, replica=window.request.replica)]


def leak_external(window: RequestWindow) -> list[Finding]:
    """`leak.external`: H_ext ≤ what the arm's tier can hold, and H_local + H_ext ≤ the largest shareable prefix."""
    hits = window.here(Counter.EXTERNAL_HITS)
    if not hits or not _can_judge(window):
        return []
    most = window.expectation.external_max
    local = window.here(Counter.LOCAL_HITS) or 0
    total_most = total_range(window.expectation)[1]
    if hits <= most and (local > window.expectation.local_max or local + hits <= total_most):
        return []
    detail = (
        f"{role_words(window)} request {window.request.key} hit {hits:,} external tokens on {window.request.replica}"
        f" beside {local:,} local ones, of {window.n_or_planned:,}; at most {most:,} external and {total_most:,} in"
        f" all were possible. Likely cause: {external_cause(window)}"
    )
    return [window.found("leak.external", detail, hits=hits, allowed=most, replica=window.request.replica)]


def leak_pool_lookup(window: RequestWindow) -> list[Finding]:
    """`leak.pool_lookup`: for a cold request the pool's own lookup hit is 0 (interfaces.md §6, rule 6)."""
    hits = window.pooled(Counter.POOL_HIT_TOKENS)
    if not hits or window.request.after_any_replica:
        return []
    detail = (
        f"cold request {window.request.key}: the cache service found {hits:,} tokens of a namespace that is new."
        " Likely cause: the pool survived a restart, ignores the salt, or somebody else uses it"
    )
    return [window.found("leak.pool_lookup", detail, hits=hits, allowed=0)]


def role_words(window: RequestWindow) -> str:
    """The hit state the request stands for, in words."""
    if not window.request.after_any_replica:
        return "cold"
    return _WARM_ROLES.get(window.request.role, window.request.role)


def local_cause(window: RequestWindow, hits: int) -> str:
    """The likeliest reason for too many local hits, judged by how many there are."""
    n, block = window.n_or_planned, window.engine.block_size
    if window.request.after_same_replica:
        return "a request outside the plan extended this namespace on the replica, or the namespace is used twice"
    if hits <= 2 * block and hits * 4 < n:
        return "a prefix that every prompt shares (a template's default system prompt) ahead of the namespace"
    if hits >= (n - 1) // block * block:
        return "exactly this prompt was sent before: the replica was not restarted, or the namespace was used before"
    return "the namespace was used before in this replica's life, such as once for two sizes"


def external_cause(window: RequestWindow) -> str:
    """The likeliest reason for too many external hits, judged by what the arm may share."""
    if window.arm.reach == "none":
        return f"arm {window.arm.name} shares nothing, yet a connector or native offload is on"
    if window.arm.reach == "replica":
        return f"arm {window.arm.name} keeps its tier per replica, yet it is shared or survived a restart"
    return "the pool survived a restart, ignores the salt, or the namespace was used before"


def _can_judge(window: RequestWindow) -> bool:
    """A failed request may have looked its prefix up twice (interfaces.md §1): only a cold one still proves a leak."""
    return window.observation.ok or not window.request.after_any_replica
