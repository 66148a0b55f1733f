"""`/status` of an LMCache server → what the drain barrier needs. Versions differ: unknown is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson


class StatusError(ValueError):
    """The body is no JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """State of the shared pool. Drained means: no locks, nothing queued, and the object count stable over two reads."""

    healthy: bool | None
    write_locked: int | None
    read_locked: int | None
    objects: int | None
    usage_ratio: float | None
    """Share of the pool in use, 0 … 1."""
    memory_used: int | None
    """Bytes."""
    memory_total: int | None
    """Bytes."""
    queued_stores: int | None
    """Keys pending and tasks in flight in the store controller."""
    queued_loads: int | None
    """Requests pending or in flight in the prefetch controller."""
    chunk_size: int | None
    """Tokens."""

    @property
    def idle(self) -> bool | None:
        """True where no lock is held and nothing is queued; None where the locks are unknown."""
        if self.write_locked is None or self.read_locked is None:
            return None
        return not (self.write_locked or self.read_locked or self.queued_stores or self.queued_loads)


def read_status(body: bytes | str) -> PoolStatus:
    """Parse one `/status` body. Raises StatusError where it is no JSON object."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError as broken:
        raise StatusError(f"no JSON ({broken}): {body[:80]!r}") from None
    if not isinstance(status, dict):
        raise StatusError(f"no JSON object: {body[:80]!r}")
    storage = _part(status, "storage_manager")
    l1 = _part(storage, "l1_manager")
    stores, loads = _part(storage, "store_controller"), _part(storage, "prefetch_controller")
    return PoolStatus(
        healthy=status["is_healthy"] if isinstance(status.get("is_healthy"), bool) else None,
        write_locked=_int(l1, "write_locked_count"),
        read_locked=_int(l1, "read_locked_count"),
        objects=_int(l1, "total_object_count"),
        usage_ratio=_number(l1, "memory_usage_ratio"),
        memory_used=_int(l1, "memory_used_bytes"),
        memory_total=_int(l1, "memory_total_bytes"),
        queued_stores=_sum(stores, "pending_keys_count", "in_flight_task_count"),
        queued_loads=_sum(loads, "submission_queue_size", "pending_queue_size", "in_flight_request_count"),
        chunk_size=_int(status, "chunk_size"),
    )


def _part(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = parent.get(name)
    return part if isinstance(part, dict) else {}


def _number(part: Mapping[str, Any], name: str) -> float | None:
    value = part.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(part: Mapping[str, Any], name: str) -> int | None:
    value = part.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sum(part: Mapping[str, Any], *names: str) -> int | None:
    known = [value for name in names if (value := _int(part, name)) is not None]
    return sum(known) if known else None
