"""`kvabba compare`: two screenings side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.output import out, print_json
from harness.wiring.places import Places

if TYPE_CHECKING:
    from harness.report import Side


def compare(
    a: Annotated[Path, typer.Argument(help="A run's folder.")],
    b: Annotated[Path, typer.Argument(help="The run to set beside it.")],
    *,
    allow_different: Annotated[
        bool, typer.Option("--allow-different", help="Compare although fingerprints differ; the output says so.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Every cell of both, as JSON.")] = False,
) -> None:
    """Set two screenings side by side. Refused (exit code 1) where engine, host, requests or processes differ.

    For example:

      kvabba compare results/quick/20261130-174611 results/quick/20261201-020000

      kvabba compare results/quick/20261130-174611 results/native/20261201-020000 --allow-different --json
    """
    from harness import report  # noqa: PLC0415 - plotting takes a second to import

    places = Places.from_environment()
    comparison = report.compare(_side(places, a), _side(places, b), allow_different=allow_different)
    if as_json:
        print_json(report.comparison_json(comparison))
    else:
        report.print_comparison(comparison, console=out())


def _side(places: Places, folder: Path) -> Side:
    from harness import report  # noqa: PLC0415 - plotting takes a second to import
    from harness.wiring.results import analyse_with_floors, judge, read_folder  # noqa: PLC0415 - the same

    judged = judge(read_folder(places.existing(folder), chunks=False))
    effects = analyse_with_floors(judged, places.floors)
    return report.Side(run=judged.run, verdict=judged.verdict, effects=effects)
