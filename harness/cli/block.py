"""`kvabba block`: one block at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.output import err, out, print_json
from harness.cli.watching import Watcher
from harness.wiring.places import Places


def block(
    arm: Annotated[str, typer.Argument(help="The arm to run, such as off or on.")],
    name: Annotated[str, typer.Argument(help="A file of blocks/ by name, or a path to a TOML file.")] = "quick",
    *,
    new: Annotated[bool, typer.Option("--new", help="Open a new screening and run its first block.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The folder as JSON on standard output.")] = False,
) -> None:
    """Run the next block of the open screening, or a loose block where none is open.

    A screening is open when `--new` began it and blocks are still to come; an interrupted `kvabba run` is not: resume
    it with `kvabba run NAME --resume RUN`. The next block must be of the arm that the order says. `kvabba audit A B`
    pairs two loose blocks.

    For example:

      kvabba block off quick && kvabba block on quick

      kvabba block off quick --new
    """
    from harness.wiring.screenings import run_one_block  # noqa: PLC0415 - not needed to parse the command line

    with Watcher(quiet=quiet) as watcher:
        folder = run_one_block(arm, name, Places.from_environment(), watcher.options(), new=new)
    if as_json:
        print_json({"folder": str(folder)})
    else:
        loose = folder.parent.name == "loose"
        kind = "loose block (no screening is open)" if loose else "block of the open screening"
        err().print(f"{kind}:", markup=False)
        out().print(str(folder), markup=False)
