"""What the two stamping connections have in common: a place, one exchange at a time, a request as bytes."""

from __future__ import annotations

import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.model.observation import FailureKind

if TYPE_CHECKING:
    import httpx

    from harness.client.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a connection goes. `context` is None for plain http."""

    host: str
    port: int
    context: ssl.SSLContext | None


class Connection(ABC):
    """One connection to one origin. `on_*` may be called from a thread other than the event loop's."""

    def __init__(self, origin: Origin, *, keep: bool) -> None:
        self.origin = origin
        self.exchange: Exchange | None = None
        self.usable = True
        """False once the connection ended, failed, or said something nobody asked for."""
        self.waited = False
        """True where the way out of the current request had to wait for the event loop."""
        self.reading = False
        """True while the reader thread is at this connection's socket."""
        self._keep = keep

    @abstractmethod
    async def open(self) -> None:
        """Connect and shake hands. Raises OSError; the socket is closed then, and on cancellation too."""

    @abstractmethod
    async def send(self, head: bytes, body: bytes) -> int:
        """Hand every byte to the socket. Raises OSError.

        Returns monotonic ns: just before the one call that took everything, else when the last byte had been taken.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the socket at once, whatever is in flight. May be called twice."""

    @abstractmethod
    def quiet(self) -> bool:
        """True where an idle connection is still up and nothing waits on it: it can carry another request."""

    def attach(self, exchange: Exchange) -> None:
        """The next reads belong to this exchange."""
        self.exchange = exchange

    def on_read(self, realtime_ns: int | None, user_ns: int, data: bytes, offset_ns: int | None = None) -> bool:
        """One read arrived. False = the connection is of no more use and is to be closed."""
        return self._take(realtime_ns, user_ns, data, len(data), offset_ns)

    def _take(self, realtime_ns: int | None, user_ns: int, data: bytes, nbytes: int, offset_ns: int | None) -> bool:
        exchange = self.exchange
        if exchange is None:
            self.usable = False
            return False
        exchange.feed(realtime_ns, user_ns, data, nbytes, offset_ns)
        if not exchange.ended:
            return True
        self.exchange = None
        self.usable = self._keep and exchange.failure is None and exchange.framing.keep_alive
        exchange.notify()
        return self.usable

    def on_eof(self) -> None:
        """The server closed its side."""
        self._lost(lambda exchange: exchange.eof(time.monotonic_ns()))

    def on_error(self, error: OSError) -> None:
        """The connection broke."""
        self._lost(lambda exchange: exchange.fail(FailureKind.RESET, str(error) or type(error).__name__))

    def _lost(self, tell: Callable[[Exchange], None]) -> None:
        self.usable = False
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            tell(exchange)
            exchange.notify()


def request_head(request: httpx.Request) -> bytes:
    """Request line and headers as bytes. The headers are those of the request, in its order."""
    lines = [request.method.encode("ascii") + b" " + request.url.raw_path + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in request.headers.raw]
    return b"\r\n".join([*lines, b"", b""])
