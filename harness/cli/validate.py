"""`kvabba validate`: the cache must be right before it may be fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from harness.cli.finishing import leave
from harness.cli.layerwatch import LayerWatch
from harness.cli.output import out, print_json
from harness.model.errors import ConfigError, ExitCode, Issue
from harness.probes.results import LAYERS, LayerName
from harness.wiring.places import Places

if TYPE_CHECKING:
    from harness.wiring.validation import Validated

_PIPED_WIDTH = 160
_STYLE = {"passed": "green", "failed": "bold red", "not validated": "yellow"}


def validate(
    name: Annotated[str, typer.Argument(help="A file of blocks/ by name, or a path to a TOML file.")] = "quick",
    *,
    short: Annotated[
        bool, typer.Option("--short", help="The short request set of layer 5, for small engines.")
    ] = False,
    layer: Annotated[
        list[str] | None, typer.Option(metavar="LAYER", help="Only this layer (name or number); can be repeated.")
    ] = None,
    arm: Annotated[str | None, typer.Option(help="Only this arm; else every arm that shares its cache.")] = None,
    pool_gib: Annotated[float | None, typer.Option(min=0.001, help="Pool size of layer 4, if not the arm's.")] = None,
    if_needed: Annotated[
        bool, typer.Option("--if-needed", help="Nothing to do, exit 0, where this very set-up may already start.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Every check as JSON on standard output.")] = False,
) -> None:
    """Run the correctness layers on the arm that shares its cache, before any timing.

    1 representation · 2 copy_ordering · 3 allocator · 4 full_pool · 5 service · 6 protocol · 7 provenance. Evidence
    lies in results/validation/FINGERPRINT/. A layer that cannot run here says which part is missing and is not
    validated, never passed.

    Exit codes: 0 all validated · 3 something not validated · 5 a layer failed.

    For example:

      kvabba validate quick --short

      kvabba validate vllm-cpu --short --layer service --layer protocol --if-needed

      kvabba validate native --layer 4 --pool-gib 64
    """
    from harness.wiring.validation import validate_named  # noqa: PLC0415 - not needed to parse the command line

    layers = _layers(layer)
    places = Places.from_environment()
    if if_needed and _may_start(name, places):
        out().print(f"{name}: this set-up is validated already", markup=False)
        return
    with LayerWatch(quiet=quiet or as_json) as watch:
        done = validate_named(name, places, watch.options(short, layers, pool_gib), arm=arm)
    if as_json:
        print_json([{**one.validation.to_json(), "folder": _place(one)} for one in done])
    else:
        for one in done:
            _show(one)
    leave(_exit_code(done, layers))


def _may_start(name: str, places: Places) -> bool:
    from harness.wiring.gating import may_start  # noqa: PLC0415 - not needed to parse the command line

    return may_start(name, places)


def _layers(asked: list[str] | None) -> tuple[LayerName, ...]:
    if not asked:
        return LAYERS
    numbered = {str(number): name for number, name in enumerate(LAYERS, start=1)} | {name: name for name in LAYERS}
    unknown = [word for word in asked if word not in numbered]
    if unknown:
        issues = [Issue(path="--layer", message=f"no layer {word!r}", allowed=", ".join(LAYERS)) for word in unknown]
        raise ConfigError("validate", issues)
    wanted = {numbered[word] for word in asked}
    return tuple(name for name in LAYERS if name in wanted)


def _exit_code(done: list[Validated], layers: tuple[LayerName, ...]) -> ExitCode:
    results = [one.validation.layers[name] for one in done for name in layers]
    if any(result.status == "failed" for result in results):
        return ExitCode.VOID
    return ExitCode.OK if all(result.status == "passed" for result in results) else ExitCode.NOT_STARTED


def _show(one: Validated) -> None:
    from harness.probes.evidence import rows  # noqa: PLC0415 - not needed to parse the command line

    validation, console = one.validation, out()
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    table = Table(title=f"{validation.screening}, arm {validation.arm}: {validation.status}", title_justify="left")
    for heading in ("", "layer", "status", "checks", "what was found, or which part is missing"):
        table.add_column(heading, overflow="fold")
    for row in rows(validation):
        words = row["missing"] or row["summary"]
        status = Text(row["status"], style=_STYLE.get(row["status"], ""))
        table.add_row(str(row["number"]), row["layer"], status, str(row["checks"] or ""), Text(words))
    console.print(table)
    console.print(f"fingerprint {validation.fingerprint_digest[:16]}", markup=False)
    if one.folder is not None:
        console.print(f"evidence: {one.folder}", markup=False)


def _place(one: Validated) -> str | None:
    return None if one.folder is None else str(one.folder)
