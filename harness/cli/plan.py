"""`kvabba plan`: what would be sent, without touching a server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness import config
from harness.model.errors import ConfigError, Issue
from harness.plan import requests_json, requests_text, schedule, totals_json, totals_text


def plan(
    name: Annotated[str, typer.Argument(help="A file of blocks/ by name, or a path to a TOML file.")] = "quick",
    *,
    totals: Annotated[bool, typer.Option("--totals", help="Only the totals.")] = False,
    block: Annotated[int | None, typer.Option(help="Only this block, 1-based.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Print every request of every block with its role and expectation.

    For example:

      kvabba plan paper --totals

      kvabba plan paper --block 2 | head
    """
    screening = config.load(name)
    schedule_ = schedule(screening)
    if block is not None and not 1 <= block <= len(schedule_.blocks):
        issue = Issue(path="--block", message=f"there is no block {block}", allowed=f"1 to {len(schedule_.blocks)}")
        raise ConfigError(name, [issue])
    if totals:
        _write(totals_json(schedule_, screening) if as_json else totals_text(schedule_, screening).encode())
    elif as_json:
        _write(requests_json(schedule_, screening, block=block))
    else:
        for line in requests_text(schedule_, screening, block=block):
            _write(line.encode())


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data + b"\n")
