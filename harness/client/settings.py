"""What a client is told: settings of a whole client, and one call."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

TransportName = Literal["auto", "kernel", "callback", "httpx"]
"""kernel: arrival stamps of the kernel, read in a thread of its own. callback: stamped when the event loop calls back.
httpx: httpx's own transport, stamped after its HTTP parsing. auto: kernel where this machine can, else callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How every request of a screening is sent; equal in all arms."""

    transport: TransportName = "auto"
    connection: Literal["new", "reused"] = "new"
    connect_timeout_s: float = 10.0
    timeout_s: float = 600.0
    """From initiation to the end of the response; also where a `Call` names none of its own."""
    freeze_gc: bool = True
    """Freeze and disable the garbage collector in every window."""
    ssl_context: ssl.SSLContext | None = None
    """For https replicas; None = the system's certificate authorities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to one named replica. `body` is sent byte for byte as it is."""

    replica: str
    url: str
    """Base URL of the replica, such as `http://127.0.0.1:8101`."""
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str | None = None
    due_ns: int | None = None
    """Monotonic ns at which the request is meant to start; None = at once. Lateness is recorded."""
    timeout_s: float | None = None
    cancel: asyncio.Event | None = None
    """When set, the connection is closed and the row becomes Failed(CANCELLED)."""
