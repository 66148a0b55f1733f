"""`kvabba export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import out, print_json
from harness.wiring.places import Places


def export(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    *,
    to: Annotated[Path | None, typer.Option(help="Where to write; default: export/ in the run's folder.")] = None,
    void: Annotated[
        bool, typer.Option(help="Export a void run too; every document then says that it is void.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The files written, as JSON.")] = False,
) -> None:
    """Write the llm-d benchmark report (v0.2, one document an arm), every request and every observation as CSV.

    For example:

      kvabba export results/quick/20261130-174611

      kvabba export results/quick/20261130-174611 --to /tmp/for-llm-d --json
    """
    from harness import report  # noqa: PLC0415 - plotting takes a second to import
    from harness.wiring.results import analyse_with_floors, judge, read_folder  # noqa: PLC0415 - the same

    places = Places.from_environment()
    source = places.existing(folder)
    target = to or source / "export"
    judged = judge(read_folder(source, chunks=False))
    effects = analyse_with_floors(judged, places.floors)
    documents = report.export_llmd(judged.run, judged.verdict, effects, target, void=void)
    written = [
        *documents,
        report.write_requests_csv(judged.run, target / "requests.csv"),
        report.write_observations_csv(effects.table, target / "observations.csv"),
    ]
    if as_json:
        print_json({"verdict": judged.verdict.status, "files": [str(path) for path in written]})
        return
    for path in written:
        out().print(str(path), markup=False)
