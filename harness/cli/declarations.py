"""`kvabba declarations`: what can be run by name."""

from __future__ import annotations

from typing import Annotated

import typer

from harness import config
from harness.cli.output import out, print_json


def declarations(*, as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False) -> None:
    """List the declarations of blocks/ with their descriptions."""
    found = config.available()
    if as_json:
        print_json([{"name": item.name, "path": str(item.path), "description": item.description} for item in found])
        return
    for item in found:
        out().print(
            f"{item.name:16} {item.description or '(cannot be read: kvabba plan ' + item.name + ')'}", markup=False
        )
