"""The `kvabba` command as a user runs it: a process of its own, results in a temporary folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = (ROOT / "blocks" / "smoke.toml").read_text(encoding="utf-8")


def declaration(
    folder: Path, name: str, *, keep: tuple[str, ...] = ("chains",), more: str = "", **replaced: str
) -> Path:
    """`smoke` under another name, with only some of its workloads, and more TOML at its end."""
    head, *sections = SMOKE.split("\n[workloads.")
    text = head.replace('name = "smoke"', f'name = "{name}"')
    for old, new in replaced.items():
        text = text.replace(old, new)
    kept = [section for section in sections if section.split("]")[0] in (*keep, "warmup")]
    path = folder / f"{name}.toml"
    path.write_text("\n[workloads.".join([text, *kept]) + "\n" + more, encoding="utf-8")
    return path


def fault(kind: str, *, side: str = "settings", **values: object) -> str:
    """A fault of the simulator as TOML."""
    lines = [f"[[engine.options.{side}.faults]]", f'kind = "{kind}"']
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in values.items())]) + "\n"


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "harness", *map(str, arguments)]


def environment(results: Path) -> dict[str, str]:
    return {**os.environ, "KVABBA_RESULTS": str(results), "NO_COLOR": "1"}


def kvabba(results: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(results),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        cwd=ROOT,
    )


def start(results: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        env=environment(results),
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )


def wait_for(process: subprocess.Popen[str], words: str) -> list[str]:
    """Lines of standard error up to one that holds the words; the test fails where it never comes."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError("".join(lines))


def only_run(results: Path, name: str) -> Path:
    runs = [path.parent for path in (results / name).glob("2*/run.json")]
    assert len(runs) == 1, runs
    return runs[0]


def header(run: Path) -> dict:
    return json.loads((run / "run.json").read_text(encoding="utf-8"))


def reason(run: Path) -> dict:
    (path,) = run.glob("excluded/*/reason.json")
    return json.loads(path.read_text(encoding="utf-8"))
