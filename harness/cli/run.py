"""`kvabba run`: a whole screening, then its audit and report."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.finishing import finish
from harness.cli.output import err
from harness.cli.watching import Watcher
from harness.model.errors import VoidBlock
from harness.wiring.places import Places


def run(
    name: Annotated[str, typer.Argument(help="A file of blocks/ by name, or a path to a TOML file.")] = "quick",
    *,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with this run; half-done pairs are rerun.")
    ] = None,
    follows: Annotated[
        str | None, typer.Option(metavar="RUN", help="The voided run that this one repeats whole.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many blocks; the screening stays open.")
    ] = None,
    unvalidated: Annotated[
        bool, typer.Option(help="Start without a passed `kvabba validate`; the report says so.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as JSON on standard output.")] = False,
) -> None:
    """Run every block, audit what was stored, write the report.

    For example:

      kvabba run quick

      kvabba run quick --resume 20261130-174611

      kvabba run quick --follows 20261130-174611      (after a leak: the whole screening again)
    """
    from harness.wiring.screenings import run_named  # noqa: PLC0415 - not needed to parse the command line

    places = Places.from_environment()
    with Watcher(quiet=quiet) as watcher:
        options = watcher.options(resume=resume, follows=follows, limit=limit, unvalidated=unvalidated)
        try:
            folder = run_named(name, places, options)
        except VoidBlock as void:
            excluded, run = (
                (watcher.results / "excluded", watcher.results.name) if watcher.results else ("excluded/", "RUN")
            )
            void.add_note(f"rule {void.rule}; the block is archived whole in {excluded} (`kvabba rules {void.rule}`)")
            void.add_note(f"once the cause is removed, the whole screening again: kvabba run {name} --follows {run}")
            raise
    if limit is not None and not quiet:
        err().print("the screening is open: `kvabba block ARM NAME` or `kvabba run NAME --resume RUN` goes on")
    finish(folder, places, as_json=as_json, quiet=quiet)
