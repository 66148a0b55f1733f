"""Standard output is for results, standard error for progress and errors. Colour on a terminal, never with NO_COLOR."""

from __future__ import annotations

import os
import sys
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text

from harness.model.errors import EngineError, HarnessError

_TAIL_LINES = 15


PIPED_COLUMNS = 120
"""Width of tables where nobody's terminal says one: room for every column of a screening."""


def out() -> Console:
    """Console on standard output."""
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, soft_wrap=True, width=None if told else PIPED_COLUMNS)


def err() -> Console:
    """Console on standard error."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    data = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def show_error(error: HarnessError) -> None:
    """What happened, where, and the next step; untrusted text is never read as markup."""
    console = err()
    console.print(Text("kvabba: ", style="bold red") + Text(error.message))
    if isinstance(error, EngineError) and error.log_tail:
        lines = error.log_tail.rstrip().splitlines()[-_TAIL_LINES:]
        console.print(Text("\n".join(f"  | {line}" for line in lines), style="dim"))
    for note in getattr(error, "__notes__", ()):
        console.print(Text(f"  {note}"))
    if error.hint:
        console.print(Text("next: ", style="bold") + Text(error.hint))
