"""Shortfalls: fewer hits than the arm promises, or hits that were never loaded. Each function is one rule."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model.counting import Counter
from harness.model.findings import Finding
from harness.rules.expect import total_range
from harness.rules.facts import RequestWindow, finding


def treatment_local_short(window: RequestWindow) -> list[Finding]:
    """`treatment.local_short`: H_local ≥ the aligned prefix that this replica was sent before."""
    hits, least = window.here(Counter.LOCAL_HITS), window.expectation.local_min
    if hits is None or hits >= least or not window.observation.ok:
        return []
    detail = f"{window.request.key} on {window.request.replica}: {hits:,} local tokens hit, at least {least:,} expected"
    return [window.found("treatment.local_short", detail, hits=hits, expected=least)]


def treatment_external_short(window: RequestWindow) -> list[Finding]:
    """`treatment.external_short`: H_ext ≥ its bound, and H_local + H_ext ≥ the shareable aligned prefix."""
    hits = window.here(Counter.EXTERNAL_HITS)
    expected = window.expectation
    if hits is None or expected.external_min == 0 or not window.observation.ok:
        return []
    local = window.here(Counter.LOCAL_HITS) or 0
    if hits >= expected.external_min and local + hits >= total_range(expected)[0]:
        return []
    detail = (
        f"{window.request.key} on {window.request.replica}: {hits:,} external tokens hit beside {local:,} local ones,"
        f" at least {expected.external_min:,} expected: arm {window.arm.name} was not applied"
    )
    return [window.found("treatment.external_short", detail, hits=hits, expected=expected.external_min)]


def treatment_not_loaded(window: RequestWindow) -> list[Finding]:
    """`treatment.not_loaded`: a cross hit is real only if the pool also loaded chunks (interfaces.md §6, rule 8)."""
    hits = window.here(Counter.EXTERNAL_HITS)
    if not hits or not window.pools or not window.observation.ok:
        return []
    loaded, read = window.pooled(Counter.POOL_LOADED_CHUNKS), window.pooled(Counter.POOL_READ_CHUNKS)
    if loaded or (loaded is None and read):
        return []
    seen = "no such counter" if loaded is None else "0 loaded chunks"
    detail = f"{window.request.key}: {hits:,} external tokens hit, but the cache service shows {seen}"
    return [window.found("treatment.not_loaded", detail, hits=hits, loaded=loaded)]


def zero_exposure(arm: str, rows: Iterable[tuple[int, int | None]], *, block: int | None = None) -> list[Finding]:
    """`treatment.zero_exposure`: rows are (expected external_min, external hits) of one block of a sharing arm.

    Found where external hits were expected somewhere and none was ever seen; a block that expects none is no exposure
    at all and gives nothing.
    """
    expected = [(least, hits) for least, hits in rows if least > 0]
    if not expected or any(hits for _, hits in expected):
        return []
    detail = f"arm {arm}: {len(expected)} requests should have hit the shared tier, none did"
    return [finding("treatment.zero_exposure", f"block {block}" if block else arm, detail, block=block)]
