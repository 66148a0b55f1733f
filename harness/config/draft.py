"""A declaration on its way from TOML: each table validated by itself, None where it could not be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config import schema
from harness.config.issues import check, did_you_mean
from harness.model.errors import Issue

_HEAD_KEYS = tuple(info.alias or name for name, info in schema.Head.model_fields.items())
_TABLES = ("engine", "services", "arms", "request", "workloads", "checks")


@dataclass(slots=True, kw_only=True)
class Draft:
    """The validated tables of one file; a table that is wrong is None and its issues are reported already."""

    head: schema.Head | None
    engine: schema.EngineTable | None
    services: dict[str, schema.ServiceTable] | None
    arms: dict[str, schema.ArmTable] | None
    request: schema.RequestTable | None
    workloads: schema.WorkloadsTable | None
    checks: schema.ChecksTable | None


def read(document: Mapping[str, Any], issues: list[Issue]) -> Draft:
    """Validate every table of a parsed file; adds all issues to `issues`."""
    known = (*_HEAD_KEYS, *_TABLES)
    for key in document:
        if key not in known:
            message = f"unknown key{did_you_mean(key, known)}"
            issues.append(Issue(path=key, message=message, allowed=", ".join(known)))
    head = {key: value for key, value in document.items() if key in _HEAD_KEYS}
    engine = _required(schema.EngineTable, document, "engine", issues)
    if engine is not None and check(schema.OPTIONS[engine.kind], engine.options, "engine.options", issues) is None:
        engine = None
    return Draft(
        head=check(schema.Head, head, "", issues),
        engine=engine,
        services=_named(schema.ServiceTable, document.get("services", {}), "services", issues),
        arms=_named(schema.ArmTable, document.get("arms"), "arms", issues),
        request=check(schema.RequestTable, document.get("request", {}), "request", issues),
        workloads=_required(schema.WorkloadsTable, document, "workloads", issues),
        checks=check(schema.ChecksTable, document.get("checks", {}), "checks", issues),
    )


def _required(model: type[schema.T], document: Mapping[str, Any], key: str, issues: list[Issue]) -> schema.T | None:
    if key in document:
        return check(model, document[key], key, issues)
    issues.append(Issue(path=key, message="is missing", allowed="a table"))
    return None


def _named(model: type[schema.T], tables: object, path: str, issues: list[Issue]) -> dict[str, schema.T] | None:
    """Tables by name, such as `[arms.on]`; None where any of them is wrong."""
    if not isinstance(tables, dict):
        issues.append(Issue(path=path, message="is missing" if tables is None else "must be a table of tables"))
        return None
    found: dict[str, schema.T] = {}
    for name, table in tables.items():
        if not schema.NAME.fullmatch(name):
            allowed = "lower-case letters, digits and dashes, at most 40 characters"
            issues.append(Issue(path=f"{path}.{name}", message=f"{name!r} is not a valid name", allowed=allowed))
        checked = check(model, table, f"{path}.{name}", issues)
        if checked is not None:
            found[name] = checked
    return found if len(found) == len(tables) else None
