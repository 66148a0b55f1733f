"""`kvabba audit`: judge stored results from the files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.finishing import leave, show_verdict
from harness.wiring.places import Places


def audit(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a loose block's.")],
    partner: Annotated[Path | None, typer.Argument(help="The other loose block, to audit both as a pair.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Every finding as JSON on standard output.")] = False,
    write: Annotated[bool, typer.Option(help="Keep the verdict as audit.json in the folder.")] = True,
) -> None:
    """Re-read a results folder and check digests, pairing, rules and answers again. Exit code 1 with findings.

    For example:

      kvabba audit results/quick/20261130-174611 --json

      kvabba audit results/quick/loose/20261130-174611 results/quick/loose/20261130-174702
    """
    from harness.wiring.results import judge, keep_verdict, pair_loose, read_folder  # noqa: PLC0415 - not needed to parse the command line

    places = Places.from_environment()
    folder = places.existing(folder)
    if partner is None:
        judged = judge(read_folder(folder))
        if write:
            keep_verdict(judged, folder)
    else:
        judged = judge(pair_loose(folder, places.existing(partner)))
    show_verdict(judged, as_json=as_json)
    leave(judged.exit_code)
