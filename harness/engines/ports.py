"""Addresses: parse a declared URL, choose free ports, say who listens.

Strategy: a port is checked free *before* its process is spawned, and after the start its listener must belong to the
process tree that was spawned. Either check alone lets a left-over replica answer for the new one.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from harness.model.errors import EngineError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a process listens. `port` 0 = to be chosen at launch."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse(url: str) -> Address:
    """The address of a base URL; no port given means the scheme's own. ValueError for anything but http(s)."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"not an http(s) base URL: {url!r}")
    port = parts.port if parts.port is not None else (443 if parts.scheme == "https" else 80)
    return Address(scheme=parts.scheme, host=parts.hostname, port=port)


def choose_free(count: int, *, host: str = LOOPBACK) -> tuple[int, ...]:
    """`count` different ports that are free now. All are held until the last is known, so none comes twice."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            probe = held.enter_context(socket.socket(_family(host), socket.SOCK_STREAM))
            probe.bind((host, 0))
            ports.append(int(probe.getsockname()[1]))
        return tuple(ports)


def in_use(address: Address) -> bool:
    """True where somebody listens there, or binding is refused for another reason.

    SO_REUSEADDR is set as servers set it: a connection in TIME_WAIT does not make a port busy.
    """
    with socket.socket(_family(address.host), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise EngineError(
                    f"{address.url}: the host is not an address of this machine",
                    phase="address",
                    hint="Declare commands (start / stop / status) for a replica on another host.",
                ) from error
            return True
    return False


def listening_sockets(address: Address) -> frozenset[int]:
    """Inodes of the sockets that listen on the address. Empty = nobody.

    Read from /proc/net directly: psutil's table of all connections also walks every open file of every process, which
    costs tens of milliseconds where a look is taken around every request.
    """
    found = set()
    for table in ("tcp", "tcp6"):
        for line in _lines(Path("/proc/net") / table):
            ip, _, port = line[1].rpartition(":")
            if line[3] == _LISTEN and int(port, 16) == address.port and _covers(_decode(ip), address.host):
                found.add(int(line[9]))
    return frozenset(found)


def listeners(address: Address) -> frozenset[int | None]:
    """Process ids that listen on the address; None stands for an owner that cannot be seen. Empty = nobody."""
    wanted = {f"socket:[{inode}]" for inode in listening_sockets(address)}
    if not wanted:
        return frozenset()
    found: dict[str, set[int]] = {}
    for pid in psutil.pids():
        for name in wanted.intersection(_descriptors(pid).values()):
            found.setdefault(name, set()).add(pid)
    unseen = frozenset[int | None]() if len(found) == len(wanted) else frozenset[int | None]([None])
    return unseen.union(*found.values())


def holders(sockets: frozenset[int], pids: Iterable[int]) -> frozenset[Path]:
    """Descriptors (`/proc/PID/fd/N`) of those processes that hold one of the sockets: cheap to look at again."""
    wanted = {f"socket:[{inode}]" for inode in sockets}
    return frozenset(path for pid in pids for path, target in _descriptors(pid).items() if target in wanted)


_LISTEN = "0A"


def _lines(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    except FileNotFoundError:  # a kernel without IPv6
        return []


def _decode(hexadecimal: str) -> str:
    """An address of /proc/net: 32-bit words in host order, written as hexadecimal digits."""
    words = [bytes.fromhex(hexadecimal[at : at + 8]) for at in range(0, len(hexadecimal), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


def _descriptors(pid: int) -> dict[Path, str]:
    """A process's descriptors and what they lead to; empty where it ended or belongs to somebody else."""
    found = {}
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found[entry] = str(entry.readlink())
    return found


def _covers(listening: str, host: str) -> bool:
    """True where a socket bound to `listening` accepts connections to `host`."""
    bound = ipaddress.ip_address(listening.split("%", maxsplit=1)[0])
    if bound.is_unspecified:
        return True
    wanted = {ipaddress.ip_address(info[4][0].split("%")[0]) for info in _resolve(host)}
    mapped = bound.ipv4_mapped if isinstance(bound, ipaddress.IPv6Address) else None
    return bound in wanted or mapped in wanted


def _resolve(host: str) -> list[tuple[object, object, object, str, tuple[str, int]]]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)  # type: ignore[return-value] # IP families only


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
