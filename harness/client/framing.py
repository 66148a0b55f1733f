"""HTTP/1.x response framing by httptools: which bytes of a read are body, and when the response is complete."""

from __future__ import annotations

import httptools


class FramingError(ValueError):
    """The server sent something that is no HTTP/1.x response."""


class ResponseFraming:
    """Feed raw reads of one response, get the body bytes each of them held.

    Interim responses (1xx) are skipped. A body that ends with the connection is complete at `eof()`; any other body
    that is cut off is not.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._interim = False
        self._keep_alive = False
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.headers_done = False
        self.complete = False
        self.surplus = False
        """Bytes came after the end of the response: the connection cannot be reused."""

    def feed(self, data: bytes) -> bytes:
        """The body bytes in this read. Raises FramingError where it is no HTTP."""
        if self.complete:
            self.surplus = True
            return b""
        self._body = b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as broken:
            self.surplus = self._is_complete()  # a complete response in front of rubbish is still complete
            if not self.surplus:
                raise FramingError(f"{broken}: {data[:120]!r}") from None
        return self._body

    def eof(self) -> bool:
        """The connection ended; True where that is a proper end of the response."""
        if self.headers_done and not self.complete and self._ends_with_connection():
            self.complete = True
        return self.complete

    @property
    def keep_alive(self) -> bool:
        """True where the server lets the connection live on after this complete response."""
        return self.complete and not self.surplus and self._keep_alive

    def header(self, name: bytes) -> str | None:
        """Value of the first header of that lower-case name."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), None)

    def _is_complete(self) -> bool:
        return self.complete

    def _ends_with_connection(self) -> bool:
        return self.header(b"content-length") is None and self.header(b"transfer-encoding") is None

    def on_message_begin(self) -> None:
        """Called by the parser."""
        if self.complete:
            self.surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if not self.headers_done:  # later ones are trailers
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self.complete:
            return
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            self.headers.clear()
        else:
            self.status, self.headers_done = status, True

    def on_body(self, body: bytes) -> None:
        """Called by the parser, perhaps several times a read."""
        if not self.complete:
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if not self._interim:
            self.complete = True
            self._keep_alive = bool(self._parser.should_keep_alive())  # the parser forgets it right after
