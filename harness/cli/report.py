"""`kvabba report`: tables, figures and the page of a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.finishing import finish
from harness.wiring.places import Places


def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict and where the report lies, as JSON.")] = False,
) -> None:
    """Audit a stored run and write report.html, audit.json and summary.json into its folder.

    For example:

      kvabba report results/quick/20261130-174611
    """
    places = Places.from_environment()
    finish(places.existing(folder), places, as_json=as_json)
