"""When is a row the client's fault? Thresholds on the client's own health that take a row out of the estimate.

What is limiting depends on where the stamps come from. Kernel stamps do not move when the event loop or the reader is
late; what can still spoil such a row is a late start, and a reader so late that the kernel merged waiting segments.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from harness.model.observation import Observation

_MS = 1_000_000
_READS_APART_NS = 100_000
"""Two events that waited together are read this close to each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Thresholds in ns; a value above its threshold limits the row."""

    late_send_ns: int = 2 * _MS
    """Start after the intended moment, or the loop's lag while the request was on its way out."""
    loop_lag_ns: int = 5 * _MS
    """Call-back stamps: the loop's lag is the stamps' error."""
    merged_lag_ns: int = 3 * _MS
    """Kernel stamps: a reader (or loop) that late while the first tokens had been merged into one stamp."""
    gc_pause_ns: int = 5 * _MS
    """The same, for a garbage collector that was not frozen."""
    clock_step_ns: int = 100_000
    """A step of the clocks under stamps that depend on both of them …"""
    stepped_delay_ns: int = 500_000
    """… while the reader was this late behind any of them: a stamp is wrong by that much at most."""
    late_row_ns: int = 50 * _MS
    """From the end of the stream to the row: time that a session's wall time would count as the engine's."""
    steal_share: float = 0.05
    """CPU time taken by the hypervisor, as a share of all cores' time during the request …"""
    steal_min_ns: int = 30 * _MS
    """… and at least this much of it: the kernel counts steal in ticks of 10 ms."""


def client_limited(
    observation: Observation, limits: ClientLimits | None = None, *, recorded_ns: int | None = None
) -> str | None:
    """The first threshold this row exceeds, in words with figures; None where the client did not limit it.

    `recorded_ns` is when the row had been recorded, given where that moment ends a measured time.
    """
    limits = limits or ClientLimits()
    return (
        _late_send(observation, limits)
        or (_kernel(observation, limits) if observation.stamp_source == "kernel" else _callback(observation, limits))
        or _late_row(observation, recorded_ns, limits)
        or _steal(observation, limits)
    )


def _late_send(observation: Observation, limits: ClientLimits) -> str | None:
    late = observation.health.late_send_ns
    return f"late send: {_ms(late)}" if late is not None and late > limits.late_send_ns else None


def _late_row(observation: Observation, recorded_ns: int | None, limits: ClientLimits) -> str | None:
    end = observation.stamps.end_ns
    if recorded_ns is None or end is None or recorded_ns - end <= limits.late_row_ns:
        return None
    return f"late row: {_ms(recorded_ns - end)} after the end of the stream"


def _callback(observation: Observation, limits: ClientLimits) -> str | None:
    """Stamps taken by the event loop are late by its lag and by collector pauses."""
    health = observation.health
    if health.loop_lag_max_ns is not None and health.loop_lag_max_ns > limits.loop_lag_ns:
        return f"event loop lag: {_ms(health.loop_lag_max_ns)} under {observation.stamp_source} stamps"
    if health.gc_pause_ns is not None and health.gc_pause_ns > limits.gc_pause_ns:
        return f"garbage collector: {_ms(health.gc_pause_ns)} under {observation.stamp_source} stamps"
    return None


def _kernel(observation: Observation, limits: ClientLimits) -> str | None:
    health = observation.health
    step, delay = health.clock_step_ns or 0, health.kernel_delay_max_ns or 0
    if abs(step) > limits.clock_step_ns and delay > limits.stepped_delay_ns:
        return f"clock step: {_ms(step)}, and the reader {_ms(delay)} behind the kernel's stamp"
    late = max(health.loop_lag_max_ns or 0, health.kernel_delay_first_content_ns or 0)
    if late > limits.merged_lag_ns and _first_content_merged(observation):
        return f"late reader: {_ms(late)}, and the first tokens had been merged into one stamp"
    return None


def _first_content_merged(observation: Observation) -> bool:
    """True where the second content had arrived when the first was read: the kernel may have joined their segments.

    A joined segment carries the later stamp. Reading event by event may still give the second one a stamp of its own
    (of a third that was joined meanwhile), so different stamps prove nothing.
    """
    content = [event for event in observation.events if event.kind == "content"]
    if len(content) < 2:
        return False
    first, second = content[:2]
    return second.read_index == first.read_index or second.at_ns <= first.user_ns + _READS_APART_NS


def _steal(observation: Observation, limits: ClientLimits) -> str | None:
    stolen, end = observation.health.cpu_steal_ns, observation.stamps.end_ns
    if stolen is None or end is None or stolen < limits.steal_min_ns:
        return None
    share = stolen / (max(1, end - observation.stamps.start_ns) * (os.cpu_count() or 1))
    return f"CPU steal: {share:.1%} of all cores" if share > limits.steal_share else None


def _ms(ns: int) -> str:
    return f"{ns / _MS:.1f} ms"
