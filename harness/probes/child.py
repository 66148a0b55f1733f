"""Entry point of the processes that layers run in: `python -m harness.probes.child NAME JSON` prints one JSON object.

It needs nothing but the standard library, numpy and what the layer itself imports, so that it also runs under another
interpreter (the engine's own environment, or a GPU host without this project's dependencies).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

MARK = "kvabba-child:"
"""Prefix of the line that carries the result; libraries print on stdout too."""


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def run(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run one child by name: copy_ordering, allocator, full_pool or representation."""
    from harness.probes import allocator, copy_ordering, full_pool, representation  # noqa: PLC0415 - after argument checks

    if name == "copy_ordering":
        return copy_ordering.child(**arguments)
    if name == "allocator":
        return allocator.child(**arguments)
    if name == "full_pool":
        return full_pool.child(**arguments)
    if name == "representation":
        return {"result": representation.run().to_json()}
    raise SystemExit(f"no such child: {name}")


def main() -> None:
    """Parse argv, run, print."""
    name, arguments = sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    sys.stdout.write(f"{MARK}{json.dumps(run(name, arguments), default=_plain)}\n")


if __name__ == "__main__":
    main()
