"""How fast layer 7 hashes files, beside what hashlib itself can do: `python -m tests.bench.provenance_speed`.

SHA-256 of files that lie in the page cache, so that the disk does not limit: bytes a second with one thread and with
one a core, and hashlib's own rate on one buffer in memory. The target is 1.5 GB/s a core or hashlib's limit on this
processor, whichever is less. Every rate stands twice: by wall time, and by processor time, which other programs on the
machine do not take part in.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.probes.provenance import READ_BYTES, digest_folder

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes a second."""

    wall: float
    cpu: float


def timed(work: Callable[[], int], repeats: int) -> Rate:
    """The best rate of several runs of `work`, which returns the bytes it hashed."""
    rates = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        done = work()
        rates.append((done / (time.perf_counter() - wall), done / (time.process_time() - cpu)))
    return Rate(max(wall for wall, _ in rates), max(cpu for _, cpu in rates))


def hash_memory(times: int = 128) -> int:
    """`hashlib.sha256` on one buffer, again and again."""
    buffer, digest = memoryview(bytes(READ_BYTES)), hashlib.sha256()
    for _ in range(times):
        digest.update(buffer)
    return READ_BYTES * times


def hash_folder(folder: Path, workers: int) -> int:
    """Layer 7's own way through a folder."""
    digests, _ = digest_folder(folder, workers=workers)
    return sum(digest.size for digest in digests)


def main() -> None:
    """Write files, measure, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--mib", type=int, default=128, help="size of each file")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index in range(options.files):
            (folder / f"weights-{index}.bin").write_bytes(os.urandom(options.mib * MIB))
        hash_folder(folder, cores)  # fills the page cache
        own = timed(hash_memory, options.repeats)
        one = timed(lambda: hash_folder(folder, 1), options.repeats)
        every = timed(lambda: hash_folder(folder, cores), options.repeats)
    found = {
        "cores": cores,
        "hashlib_gb_per_s": own.wall / 1e9,
        "hashlib_gb_per_cpu_s": own.cpu / 1e9,
        "one_thread_gb_per_s": one.wall / 1e9,
        "one_thread_gb_per_cpu_s": one.cpu / 1e9,
        "all_cores_gb_per_s": every.wall / 1e9,
        "all_cores_gb_per_cpu_s": every.cpu / 1e9,
        "share_of_hashlib_a_core": every.cpu / own.cpu,
    }
    sys.stdout.write(json.dumps({key: round(value, 3) for key, value in found.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
