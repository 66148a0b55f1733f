"""The summary in the terminal: verdict, answer, metrics, exclusions. Plain text where the output is no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.model.findings import Verdict
from harness.model.stored import StoredRun
from harness.report.effect_views import floor_text, formatter, interval_text, number
from harness.report.exclusions import archived, finding_groups
from harness.report.numbers import percent
from harness.report.provenance import simulated, unvalidated
from harness.report.verdicts import WORDS, stamp_sentence, verdict_sentence
from harness.report.words import METRICS, cell_words, time_scales

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.analysis import Effect, Effects

_STYLES = {"valid": "bold green", "incomplete": "bold yellow", "void": "bold red"}
_PIPED_WIDTH = 100
_SUBJECTS = 3


def terminal_summary(run: StoredRun, verdict: Verdict, effects: Effects, *, console: Console | None = None) -> None:
    """Print the summary; `console` defaults to standard output (without colour and 100 columns wide where piped)."""
    out = console or _console()
    out.print(_headline(run, verdict))
    out.print(clean(verdict_sentence(verdict)))
    if verdict.status != "valid":
        out.print(Text(stamp_sentence(verdict), style=_STYLES[verdict.status]))
    if scales := time_scales(run):
        out.print(Text(f"Simulated time ran compressed ({scales}); times are scaled seconds.", style="dim"))
    out.print()
    out.print(clean(effects.answer))
    for metric in METRICS:
        mine = [effect for effect in effects.table.effects if effect.cell.metric == metric]
        found = [effect for effect in mine if effect.units]
        if found:
            out.print()
            out.print(_table(metric, found, stamp=verdict.status))
        if empty := [cell_words(effect.cell) for effect in mine if not effect.units]:
            out.print(_indented(f"{METRICS[metric]}: no pair is left of {', '.join(dict.fromkeys(empty))}"))
    _exclusions(out, run, verdict)


def _indented(text: str | Text) -> Text:
    """Two spaces and the text: `Padding` would cut a line that a piped output does not wrap."""
    return Text("  ").append_text(clean(text) if isinstance(text, str) else text)


def clean(text: str) -> Text:
    """Text as data: no markup, and no control characters that a terminal would act on."""
    return Text(
        "".join(
            character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}"
            for character in text
        )
    )


def _console() -> Console:
    plain = Console()
    return plain if plain.is_terminal else Console(width=_PIPED_WIDTH)


def _headline(run: StoredRun, verdict: Verdict) -> Text:
    words = [WORDS[verdict.status].upper()]
    words += ["unvalidated"] if unvalidated(run) else []
    words += ["simulated"] if simulated(run) else []
    line = Text(", ".join(words), style=_STYLES[verdict.status])
    return line.append_text(Text("  ")).append_text(clean(f"{run.screening.name} {run.run}"))


def _table(metric: str, found: Sequence[Effect], *, stamp: str) -> Table:
    title = f"{METRICS[metric]}, {found[0].cell.unit}"
    if stamp != "valid":
        title = f"{title} ({stamp})"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    several = len({effect.treatment for effect in found}) > 1
    table.add_column("cell", no_wrap=True)
    table.add_column(clean(found[0].baseline), justify="right")
    table.add_column(clean("arm" if several else found[0].treatment), justify="right")
    for head in ("paired change", "A/A floor", "per block pair"):
        table.add_column(head, justify="right")
    for effect in found:
        write = formatter(effect.cell)
        name = f"{cell_words(effect.cell)}{f', {effect.treatment}' if several else ''}"
        pairs = [percent(pair.change_pct) for pair in effect.per_pair]
        table.add_row(
            clean(name),
            write(number(effect.baseline_median)),
            write(number(effect.treated_median)),
            percent(number(effect.mean_change_pct)),
            floor_text(effect),
            interval_text(effect) or (", ".join(pairs) if len(pairs) <= 3 else f"{len(pairs):,} pairs"),
        )
    return table


def _exclusions(out: Console, run: StoredRun, verdict: Verdict) -> None:
    for group in finding_groups(verdict.findings):
        style = _STYLES.get(group.severity, "bold")
        out.print()
        out.print(
            Text(f"{group.severity}: {group.title} ", style=style).append_text(Text(f"[{group.rule}] {group.total:,}×"))
        )
        for subject, detail in group.subjects[:_SUBJECTS]:
            out.print(_indented(f"{subject}: {detail}" if detail else subject))
        if group.next_step:
            out.print(_indented(Text(f"Next: {group.next_step}", style="dim")))
    for block in archived(run):
        out.print()
        out.print(
            Text(f"{block.kind} block {block.position} ({block.arm}): ", style="bold").append_text(clean(block.title))
        )
        words = " ".join(part for part in (block.key, block.detail, f"Fix: {block.fix}" if block.fix else "") if part)
        out.print(_indented(words))
