"""Declarations by name or path."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.canonical import with_digest
from harness.config.convert import convert
from harness.config.crosscheck import crosscheck
from harness.config.draft import read
from harness.config.issues import did_you_mean
from harness.model.errors import ConfigError, Issue
from harness.model.screening import Screening

BLOCKS = Path(__file__).resolve().parents[2] / "blocks"
"""Where declarations lie in a checkout; a path given to `load` may lie anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """One declaration that can be loaded by name; `description` is None where the file cannot be read."""

    name: str
    path: Path
    description: str | None


def load(name_or_path: str | Path, *, folder: Path = BLOCKS) -> Screening:
    """The screening of `blocks/NAME.toml` or of a path; ConfigError with everything that is wrong in it."""
    path = _locate(name_or_path, folder)
    return loads(path.read_bytes(), source=str(name_or_path), stem=path.stem)


def loads(text: bytes, *, source: str = "declaration", stem: str | None = None) -> Screening:
    """The screening of a declaration's bytes; `stem` is the file's name that `name` must equal."""
    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(source, [Issue(path="", message=f"is no TOML: {error}")]) from error
    return from_document(document, source=source, stem=stem)


def from_document(document: Mapping[str, Any], *, source: str = "declaration", stem: str | None = None) -> Screening:
    """The screening of a parsed declaration; ConfigError with every issue at once."""
    issues: list[Issue] = []
    draft = read(document, issues)
    issues.extend(crosscheck(draft))
    if stem is not None and draft.head is not None and draft.head.name != stem:
        issues.append(Issue(path="name", message=f"{draft.head.name!r} is not the file's name", allowed=stem))
    if issues:
        raise ConfigError(source, issues)
    return with_digest(convert(draft))


def available(folder: Path = BLOCKS) -> tuple[Available, ...]:
    """Every declaration of the folder with its description, in name order."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        try:
            description = tomllib.loads(path.read_text(encoding="utf-8")).get("description")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            description = None
        found.append(Available(name=path.stem, path=path, description=description))
    return tuple(found)


def _locate(name_or_path: str | Path, folder: Path) -> Path:
    path = Path(name_or_path)
    if path.suffix == ".toml" or len(path.parts) > 1:
        if not path.is_file():
            raise ConfigError(str(name_or_path), [Issue(path="", message="there is no such file")])
        return path
    named = folder / f"{name_or_path}.toml"
    if named.is_file():
        return named
    names = [entry.name for entry in available(folder)]
    message = f"there is no declaration of that name{did_you_mean(str(name_or_path), names)}"
    raise ConfigError(str(name_or_path), [Issue(path="", message=message, allowed=", ".join(names))])
