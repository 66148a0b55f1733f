"""`kvabba manifest`: SHA-256 of every file of a model directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from harness.cli.output import err, out, print_json
from harness.model.errors import ConfigError, Issue, StoreError


def manifest(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    *,
    target: Annotated[Path | None, typer.Option("--out", help="Write here, not into the directory.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The manifest as JSON on standard output.")] = False,
) -> None:
    """Write the manifest that layer 7 of `kvabba validate` compares a model directory with.

    Files are read once, streamed, several at a time; one that changes meanwhile is an error.

    For example:

      kvabba manifest .cache/models/tiny
    """
    from harness.probes import provenance  # noqa: PLC0415 - not needed to parse the command line

    if not folder.is_dir():
        raise ConfigError("manifest", [Issue(path=str(folder), message="there is no such directory")])
    console = err()
    with Progress(
        TextColumn("hashing"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        console=console, transient=True, disable=quiet or not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("hashing", total=None)
        try:
            written = provenance.write_manifest(
                folder, target, progress=lambda done, total: bar.update(task, completed=done, total=total)
            )
        except OSError as error:
            raise StoreError(f"no manifest of {folder}: {error}", hint="Run it again on files at rest.") from error
    if as_json:
        print_json(written)
        return
    speed = written["bytes"] / written["seconds"] / 1e9 if written["seconds"] else 0.0
    path = target or folder / provenance.MANIFEST_NAME
    out().print(
        f"{path}: {len(written['files'])} files, {written['bytes']:,} bytes in {written['seconds']:.1f} s"
        f" ({speed:.2f} GB/s)",
        markup=False,
    )
