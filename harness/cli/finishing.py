"""After a run: audit, report, and the summary in the terminal; shared by `run`, `block`, `audit` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.output import out, print_json
from harness.model.errors import ExitCode

if TYPE_CHECKING:
    from harness.wiring.places import Places
    from harness.wiring.results import Judged

_SHOWN = 20


def finish(folder: Path, places: Places, *, as_json: bool, quiet: bool = False) -> None:
    """Audit the folder, write its report, print the summary; exits 1 where the verdict is not valid."""
    from harness.wiring.results import judge, read_folder, report_on  # noqa: PLC0415 - not needed to parse the command line

    judged = judge(read_folder(folder))
    page, effects = report_on(judged, folder, places.floors)
    if as_json:
        print_json({**judged.as_json(), "report": str(page), "answer": effects.answer})
    elif not quiet:
        from harness.report.terminal import terminal_summary  # noqa: PLC0415 - plotting takes a second to import

        terminal_summary(judged.run, judged.verdict, effects, console=out())
        out().print(f"\nreport: {page}", markup=False)
    leave(judged.exit_code)


def show_verdict(judged: Judged, *, as_json: bool) -> None:
    """The audit alone."""
    if as_json:
        print_json(judged.as_json())
        return
    verdict, console = judged.verdict, out()
    console.print(
        f"{judged.run.screening.name} {judged.run.run}: {verdict.status}"
        f" ({verdict.rows} rows = {verdict.paired} paired + {verdict.excluded} excluded)",
        markup=False,
    )
    for found in verdict.findings[:_SHOWN]:
        named = "" if not found.subject or found.subject in found.detail else f"{found.subject}: "
        console.print(f"  {found.severity}  {found.rule}  {named}{found.detail}", markup=False)
    if len(verdict.findings) > _SHOWN:
        console.print(f"  … and {len(verdict.findings) - _SHOWN} more: --json shows all", markup=False)


def leave(code: ExitCode) -> None:
    """Exit with a code other than 0."""
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))
