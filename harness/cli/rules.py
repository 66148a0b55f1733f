"""`kvabba rules`: every rule, what it means and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli.documents import rules_markdown
from harness.cli.output import out, print_json
from harness.model.errors import ConfigError, Issue
from harness.model.rulebook import RULES, Rule


def rules(
    rule_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One rule, or the start of several.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The text of docs/rules.md.")] = False,
) -> None:
    """Explain the rules that void a block, exclude a unit or warn.

    For example:

      kvabba rules

      kvabba rules leak.local
    """
    if markdown:
        typer.echo(rules_markdown(), nl=False)
        return
    chosen = [known for known in RULES.values() if rule_id is None or known.id.startswith(rule_id)]
    if not chosen:
        raise ConfigError("rules", [Issue(path=str(rule_id), message="there is no such rule", allowed="kvabba rules")])
    if as_json:
        print_json([asdict(known) for known in chosen])
    elif rule_id is None:
        for known in chosen:
            out().print(f"{known.id:32} {known.severity:11} {known.title}", markup=False)
    else:
        for known in chosen:
            _explain(known)


def _explain(known: Rule) -> None:
    console = out()
    console.print(f"{known.id}: {known.title}", style="bold", markup=False)
    console.print(f"  {known.meaning}", markup=False)
    console.print(f"  severity {known.severity}, exit code {int(known.exit_code)}", markup=False)
    console.print(f"  next: {known.next_step}", markup=False)
