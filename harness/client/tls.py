"""TLS over a socket that somebody else reads: the standard library's SSL object between two memory buffers.

So the bytes can be read, and stamped by the kernel, before they are decrypted. A read of ciphertext completes zero or
more plaintext bytes; those take that read's stamp.
"""

from __future__ import annotations

import ssl
import threading

_PIECE = 65_536


class TlsPipe:
    """Client side of one TLS connection, without I/O. Encrypting and decrypting may happen in different threads."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._lock = threading.Lock()

    def handshake(self, received: bytes) -> bool:
        """Take bytes of the handshake; True once it is done. Raises ssl.SSLError. Then send `pending()`."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def encrypt(self, plain: bytes) -> bytes:
        """Ciphertext to send."""
        with self._lock:
            view = memoryview(plain)
            while view:
                view = view[self._tls.write(view) :]
            return self._outgoing.read()

    def decrypt(self, received: bytes) -> tuple[bytes, bool]:
        """(plaintext that these bytes completed, True where the server closed its side). Raises ssl.SSLError."""
        with self._lock:
            self._incoming.write(received)
            plain: list[bytes] = []
            closed = False
            try:
                while piece := self._tls.read(_PIECE):
                    plain.append(piece)
                closed = True
            except ssl.SSLWantReadError:
                pass  # the rest of a record is still to come
            except ssl.SSLZeroReturnError:
                closed = True
            return b"".join(plain), closed

    def pending(self) -> bytes:
        """What TLS itself wants to send (handshake, key update, alert)."""
        with self._lock:
            return self._outgoing.read()
