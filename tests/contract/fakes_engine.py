"""A fake replica or service as a real process: just enough HTTP, and every way to misbehave at start and stop.

Run as a script. It needs the standard library only, so that it is up in a few hundredths of a second.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="fake")
    parser.add_argument("--unhealthy-answers", type=int, default=0, help="first N answers of the health path are 503")
    parser.add_argument("--exit", type=int, default=None, help="exit at once with this code")
    parser.add_argument("--say", default=None, help="print this line first")
    parser.add_argument("--stubborn-child", type=Path, default=None, help="fork one; its pid is written there")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--shm", type=Path, default=None, help="leave some behind; its names are written there")
    parser.add_argument("--metrics", type=Path, default=None)
    parser.add_argument("--version", default="0.0.fake")
    parser.add_argument("--never-listen", action="store_true")
    parser.add_argument("--reuse-port", action="store_true")
    parser.add_argument("--kv-transfer-config", default=None)
    return parser.parse_args()


def fork_stubborn_child(pid_file: Path) -> None:
    """A grandchild in its own session, renamed, deaf to SIGTERM, with a scrubbed command line of its own."""
    ready, announce = os.pipe()
    if os.fork() != 0:
        os.close(announce)
        os.read(ready, 1)
        return
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(15, b"EngineCore", 0, 0, 0)
    pid_file.write_text(str(os.getpid()), encoding="ascii")
    os.write(announce, b"x")
    while True:
        time.sleep(3600)


def leave_shared_memory(names_file: Path) -> None:
    """One segment named after this pid, as LMCache does, and one that is only mapped."""
    named = shared_memory.SharedMemory(name=f"lmcache_kv_{os.getpid()}_0", create=True, size=8192)
    mapped = shared_memory.SharedMemory(create=True, size=8192)
    names_file.write_text(f"{named.name}\n{mapped.name}\n", encoding="ascii")
    # Whoever unregisters a segment takes its removal on himself: nobody does.
    from multiprocessing import resource_tracker  # noqa: PLC0415 - only this behaviour needs it

    for segment in (named, mapped):
        resource_tracker.unregister(segment._name, "shared_memory")
    globals()["_kept"] = (named, mapped)


class Fake:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.unhealthy = options.unhealthy_answers
        self.closing = False
        self.open: set[asyncio.StreamWriter] = set()

    def answer(self, path: str) -> tuple[int, str]:
        if path in {"/health", "/healthcheck"}:
            self.unhealthy -= 1
            return (503 if self.unhealthy >= 0 else 200), "{}"
        if path == "/v1/models":
            return 200, json.dumps({"object": "list", "data": [{"id": self.options.model}]})
        if path == "/version":
            return 200, json.dumps({"version": self.options.version})
        if path == "/metrics" and self.options.metrics is not None:
            return 200, self.options.metrics.read_text(encoding="utf-8")
        return 404, "{}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        if self.closing:
            writer.close()
            return
        head = await reader.readuntil(b"\r\n\r\n")
        status, body = self.answer(head.split(b" ")[1].decode().partition("?")[0])
        payload = body.encode()
        headers = f"content-length: {len(payload)}\r\nconnection: close\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\n{headers}\r\n".encode() + payload)
        await writer.drain()
        self.open.discard(writer)
        writer.close()


async def run(options: argparse.Namespace) -> None:
    if options.never_listen:
        await asyncio.Event().wait()
    fake = Fake(options)
    server = await asyncio.start_server(fake.serve, options.host, options.port, reuse_port=options.reuse_port or None)

    def close() -> None:
        server.close()
        fake.closing = True
        for writer in fake.open:  # whoever holds a connection learns from its end that nobody listens any more
            writer.close()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, close)
    await asyncio.Event().wait()


def main() -> None:
    options = arguments()
    if options.say is not None:
        print(options.say, flush=True)  # noqa: T201 - its log is what is tested
    if options.exit is not None:
        sys.exit(options.exit)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.stubborn_child is not None:
        fork_stubborn_child(options.stubborn_child)
    if options.shm is not None:
        leave_shared_memory(options.shm)
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
