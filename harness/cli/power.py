"""`kvabba power`: how many blocks a screening needs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import out, print_json
from harness.model.errors import ConfigError, Issue
from harness.wiring.places import Places


def power(
    folder: Annotated[Path, typer.Argument(help="An A/A run, or an earlier screening of the same set-up.")],
    *,
    percent: Annotated[float, typer.Option(help="The change that must be told from 0, in percent.")] = 5.0,
    target: Annotated[
        float, typer.Option(help="The share of screenings in which it must be.", min=0.5, max=0.99)
    ] = 0.8,
    as_json: Annotated[bool, typer.Option("--json", help="Every cell with its assumptions, as JSON.")] = False,
) -> None:
    """How many block pairs resolve a given change, per metric, from the spread of an earlier run.

    For example:

      kvabba power results/aa/20261130-174611 --percent 2

      kvabba power results/quick/20261130-174611 --percent -10 --target 0.9 --json
    """
    from harness.analysis import power as counting  # noqa: PLC0415 - scipy takes a second to import
    from harness.wiring.results import analyse_with_floors, judge, read_folder  # noqa: PLC0415 - the same

    if percent <= -100 or percent == 0:
        raise ConfigError(
            "power", [Issue(path="--percent", message=f"{percent:g} cannot be resolved", allowed="above -100, not 0")]
        )
    places = Places.from_environment()
    judged = judge(read_folder(places.existing(folder), chunks=False))
    effects = analyse_with_floors(judged, places.floors)
    found = counting.needs(effects.table, percent, target=target)
    if as_json:
        print_json(
            {"verdict": judged.verdict.status, "needs": [{**asdict(need), "label": need.cell.label} for need in found]}
        )
        return
    if not found:
        out().print(
            "This run has no cell whose spread is known: run an A/A screening, or one of two or more block pairs."
        )
        return
    out().print(counting.in_words(found), markup=False)
    out().print(f"\nAssumptions (first cell): {found[0].assumptions}", markup=False)
