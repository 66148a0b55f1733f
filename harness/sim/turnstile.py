"""One costly step at a time, and a turn of the event loop between two.

Requests that arrive together would otherwise be parsed, encoded and looked up in one turn of the loop, milliseconds in
which no token that falls due is written. A real engine does this work in other processes than the one that decodes.
"""

from __future__ import annotations

import asyncio


class Turnstile:
    """Lets tasks pass in the order in which they came."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Return when it is this task's turn; what is due on the loop has been done before."""
        async with self._lock:
            await asyncio.sleep(0)
