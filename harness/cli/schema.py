"""`kvabba schema`: every column of every stored table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli.documents import schema_markdown
from harness.cli.output import out, print_json
from harness.model.rows import SCHEMA_VERSION, TABLES


def schema(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The text of docs/schema.md.")] = False,
) -> None:
    """Explain the columns of requests, chunks and counters."""
    if markdown:
        typer.echo(schema_markdown(), nl=False)
    elif as_json:
        tables = {name: [asdict(column) for column in columns] for name, columns in TABLES.items()}
        print_json({"schema_version": SCHEMA_VERSION, "tables": tables})
    else:
        for name, columns in TABLES.items():
            out().print(f"\n{name}", style="bold", markup=False)
            for column in columns:
                unit = f" [{column.unit}]" if column.unit else ""
                out().print(f"  {column.name:30} {column.type:10}{unit} {column.meaning}", markup=False)
