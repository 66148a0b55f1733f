"""The page: one self-contained HTML file, made from stored files alone, the same bytes for the same input."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness import __version__
from harness.model.findings import Verdict
from harness.model.stored import StoredRun
from harness.report.downloads import downloads
from harness.report.drilldown import Drilldown, drilldown
from harness.report.embed import policy, script_json
from harness.report.exclusions import archived, finding_groups
from harness.report.numbers import plural
from harness.report.provenance import arm_fields, block_facts, header_facts, simulated, unvalidated
from harness.report.sections import sections
from harness.report.validated import validations
from harness.report.verdicts import WORDS, stamp_sentence, verdict_sentence
from harness.report.words import applied_checks, arm_names, order_label, time_scales

if TYPE_CHECKING:
    from harness.analysis import Effects

BLOCKS_SHOWN = 12
"""Columns of the per-block facts; further blocks are in their manifests."""

_BLOCK_SECTIONS = (
    ("fingerprints", "Fingerprints of replicas and services"),
    ("capacity", "Cache capacity"),
    ("host", "Host conditions"),
    ("canary", "Isolation canary"),
    ("time", "Time of the blocks"),
    ("rows", "Rows"),
)

_ALWAYS = frozenset({"fingerprints", "capacity", "host"})
"""Parts whose absence is worth a line; the others are left out where a manifest does not have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSection:
    """One part of the manifests: facts that differ between blocks, and those that do not."""

    title: str
    differing: tuple[Any, ...]
    common: tuple[tuple[str, str], ...]
    open: bool


def write_report(run: StoredRun, verdict: Verdict, effects: Effects, path: Path) -> Path:
    """Write the report of a results folder to `path` (replaced whole, never half written) and return it."""
    text = render(run, verdict, effects)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(partial).chmod(0o644)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return path


def render(run: StoredRun, verdict: Verdict, effects: Effects) -> str:
    """The page as text."""
    style, script = _asset("style.css"), _asset("page.js")
    drill = drilldown(run, verdict)
    context = _context(run, verdict, drill) | sections(run, verdict, effects, drill.anchors)
    files = downloads(run, effects)
    page = _templates().get_template("page.html")
    return page.render(
        context,
        policy=policy(style=style, script=script),
        style=Markup(style),  # noqa: S704 - the project's own file, byte for byte as hashed in the policy
        script=Markup(script),  # noqa: S704 - the same
        data=script_json(files.tables),
        downloads=files.buttons,
        csv_sentence=files.sentence,
        contents=_contents(context),
    )


def _context(run: StoredRun, verdict: Verdict, drill: Drilldown) -> dict[str, Any]:
    is_simulated = simulated(run)
    return {
        "run": run,
        "folder": folder_label(run),
        "version": __version__,
        "page_title": _title(run, verdict, is_simulated=is_simulated),
        "simulated": is_simulated,
        "unvalidated": unvalidated(run),
        "order": order_label(run),
        "pair_count": len({block.pair for block in run.blocks}),
        "predecessor": run.header.get("predecessor"),
        "arms": arm_names(run),
        "verdict": verdict,
        "word": WORDS[verdict.status],
        "stamp_word": None if verdict.status == "valid" else verdict.status.upper(),
        "verdict_sentence": verdict_sentence(verdict),
        "stamp_sentence": stamp_sentence(verdict),
        "scales": time_scales(run),
        "findings": finding_groups(verdict.findings),
        "archived": archived(run),
        "drill": drill,
        "drill_sentence": _drill_sentence(drill),
        "arm_fields": arm_fields(run.screening),
        "block_sections": _block_sections(run),
        "block_names": [f"{block.position} {block.arm}" for block in run.blocks[:BLOCKS_SHOWN]],
        "header_facts": header_facts(run),
        "applied_checks": applied_checks(run.screening),
        "validations": validations(run),
    }


def folder_label(run: StoredRun) -> str:
    """The results folder without the part of its path that belongs to one machine."""
    parts = PurePath(run.path).parts
    return str(PurePath(*parts[parts.index("results") :])) if "results" in parts else PurePath(run.path).name


def _title(run: StoredRun, verdict: Verdict, *, is_simulated: bool) -> str:
    words = [run.screening.name, run.run, WORDS[verdict.status].lower()]
    return " · ".join([*words, "simulated"] if is_simulated else words)


def _block_sections(run: StoredRun) -> tuple[BlockSection, ...]:
    rows = []
    for key, title in _BLOCK_SECTIONS:
        facts = block_facts(run, key, shown=BLOCKS_SHOWN)
        if not facts and key not in _ALWAYS:
            continue
        rows.append(
            BlockSection(
                title=title,
                differing=tuple(fact for fact in facts if fact.common is None),
                common=tuple((fact.path, fact.common) for fact in facts if fact.common is not None),
                open=key == "capacity",
            ),
        )
    return tuple(rows)


def _drill_sentence(drill: Drilldown) -> str:
    if drill.shown == drill.total:
        return f"All {plural(drill.total, 'pair')}. Open one for its stamps, counters, hashes and answers in every arm."
    return (
        f"{plural(drill.shown, 'pair')} of {drill.total:,}: the {drill.flagged:,} with a finding come first in line, "
        "then pairs in the order in which they ran. The rest is in the folder's requests.parquet files."
    )


def _contents(context: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    entries = (
        ("verdict", "Verdict", True),
        ("ttft", "Time to first token", context["ttft"]),
        ("sessions", "Sessions", context["sessions"]),
        ("rates", "Decode and throughput", context["rates"]),
        ("changes", "Changes and floor", context["changes"]),
        ("drift", "Drift", context["drift"]),
        ("published", "Published", context["published"]),
        ("outputs", "Output checks", True),
        ("validation", "Validation", context["validations"]),
        ("findings", "Findings", True),
        ("requests", "Requests", True),
        ("configuration", "Configuration", True),
        ("data-files", "Data", True),
    )
    return [(anchor, label) for anchor, label, present in entries if present]


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("harness.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _asset(name: str) -> str:
    return (resources.files("harness.report") / "templates" / name).read_text(encoding="utf-8")
