"""The list of subcommands; a new one is a module with a function, and a line here."""

from __future__ import annotations

import typer

from harness import __version__
from harness.cli import (
    audit,
    block,
    compare,
    declarations,
    export,
    manifest,
    plan,
    power,
    report,
    rules,
    run,
    schema,
    validate,
)

app = typer.Typer(
    name="kvabba",
    help="Paired ON/OFF experiments on LLM serving with shared KV caches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    _version_wanted: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Paired ON/OFF experiments on LLM serving with shared KV caches.

    Exit codes: 0 valid · 1 findings · 2 declaration wrong · 3 engine not started · 4 leak · 5 void · 6 interrupted ·
    7 folder locked · 8 deadline.
    """


app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("block")(block.block)
app.command("validate")(validate.validate)
app.command("manifest")(manifest.manifest)
app.command("audit")(audit.audit)
app.command("report")(report.report)
app.command("power")(power.power)
app.command("compare")(compare.compare)
app.command("export")(export.export)
app.command("rules")(rules.rules)
app.command("declarations")(declarations.declarations)
app.command("schema")(schema.schema)
