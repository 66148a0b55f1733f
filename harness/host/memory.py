"""How much memory a process may really take."""

from __future__ import annotations

from pathlib import Path

from harness.host import cgroup


def memory_available(root: Path = Path("/")) -> int | None:
    """Bytes that can be allocated now: the smaller of the kernel's MemAvailable and what the control group leaves.

    MemTotal is no answer: in a container it is the host's. None where neither is known.
    """
    known = [
        value for value in (meminfo(root).get("MemAvailable"), cgroup.limits(root).memory_free) if value is not None
    ]
    return min(known, default=None)


def meminfo(root: Path = Path("/")) -> dict[str, int]:
    """Lines of /proc/meminfo in bytes; {} where it cannot be read."""
    try:
        text = (root / "proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found
