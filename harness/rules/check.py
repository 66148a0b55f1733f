"""All rules of one single-request window, worst first: leaks, then counters, invariants, treatment, the pool."""

from __future__ import annotations

from harness.model.findings import Finding
from harness.rules import invariants, leaks, pools, treatment
from harness.rules.facts import Check, RequestWindow

CHECKS: tuple[Check, ...] = (
    leaks.leak_local,
    leaks.leak_external,
    leaks.leak_pool_lookup,
    invariants.counter_reset,
    invariants.counter_missing,
    invariants.invariant_idle_replica,
    invariants.invariant_queries,
    invariants.invariant_prompt_tokens,
    invariants.invariant_planned_tokens,
    invariants.invariant_preemption,
    pools.pool_losses,
    treatment.treatment_local_short,
    treatment.treatment_external_short,
    treatment.treatment_not_loaded,
    invariants.invariant_local_range,
    invariants.invariant_external_queries,
    invariants.invariant_sources,
    invariants.invariant_cached_tokens,
    invariants.invariant_chunk_arithmetic,
)


def check_window(window: RequestWindow) -> list[Finding]:
    """Every finding about one request and its window; empty where everything holds."""
    return [found for check in CHECKS for found in check(window)]
