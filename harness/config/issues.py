"""From pydantic's errors to issues that name the path in the file, what is wrong, and what is allowed."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.config.schema import T
from harness.model.errors import Issue

_ALLOWED: dict[str, str] = {
    r"^[a-z0-9][a-z0-9-]{0,39}$": "lower-case letters, digits and dashes, at most 40 characters",
    r"^[A-Za-z0-9][A-Za-z0-9-]{0,19}$": "letters, digits and dashes, at most 20 characters",
    r"^[0-9a-z.]{1,12}$": "digits, lower-case letters and dots, at most 12 characters, such as 8k",
    r"^/": "a path that begins with /",
}


def check(model: type[T], data: object, path: str, issues: list[Issue]) -> T | None:
    """Validate one table found at `path`; None where something is wrong, and then every issue was added."""
    if not isinstance(data, dict):
        issues.append(Issue(path=path, message=f"must be a table, not {_kind(data)}", allowed=_keys(model)))
        return None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        issues.extend(_issue(detail, model, path) for detail in error.errors(include_url=False))
        return None


def join(path: str, location: Sequence[str | int]) -> str:
    """`workloads.chains.sizes[1].tokens` from a path and a location inside it."""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A suggestion for a misspelt word, or nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def repeated(values: Sequence[object]) -> Iterator[tuple[int, object]]:
    """(index, value) of every value that stands earlier in the list as well."""
    for index, value in enumerate(values):
        if value in values[:index]:
            yield index, value


def _issue(detail: ErrorDetails, model: type[BaseModel], path: str) -> Issue:
    location = [part for part in detail["loc"] if not _is_union_branch(part)]
    where = join(path, location)
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        word = str(location[-1])
        return Issue(
            path=where, message=f"unknown key{did_you_mean(word, known)}", allowed=", ".join(known) or "no key"
        )
    if kind == "missing":
        return Issue(path=where, message="is missing", allowed=None)
    value = detail["input"]
    if kind == "literal_error":
        return Issue(path=where, message=f"{value!r} is not known", allowed=str(context.get("expected")))
    if kind == "string_pattern_mismatch":
        return Issue(path=where, message=f"{value!r} is not a valid name", allowed=_ALLOWED.get(context["pattern"]))
    if kind.endswith("_type"):
        return Issue(path=where, message=f"has the wrong type ({_kind(value)})", allowed=_type_words(kind))
    return Issue(path=where, message=_sentence(detail["msg"], value), allowed=_bounds(context))


def _is_union_branch(part: str | int) -> bool:
    """Pydantic names the branch of a union in the location (`literal['unset']`, `bool`); the file knows none."""
    return isinstance(part, str) and (
        part.startswith(("literal[", "constrained-", "list[")) or part in {"bool", "int", "str"}
    )


def _sentence(message: str, value: object) -> str:
    shown = repr(value)
    return f"{shown[:60]}: {message[0].lower()}{message[1:]}"


def _bounds(context: dict[str, Any]) -> str | None:
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "min_length": "at least", "max_length": "at most"}
    parts = [f"{sign} {context[name]}" for name, sign in words.items() if name in context]
    return ", ".join(parts) or None


def _kind(value: object) -> str:
    names = {dict: "table", list: "array", str: "string", bool: "boolean", int: "integer", float: "float"}
    return names.get(type(value), type(value).__name__)


def _type_words(kind: str) -> str:
    words = {
        "int": "an integer",
        "float": "a number",
        "bool": "true or false",
        "string": "a string",
        "list": "an array",
    }
    words |= {"dict": "a table", "model": "a table"}
    return words.get(kind.removesuffix("_type"), kind.removesuffix("_type"))


def _keys(model: type[BaseModel]) -> str:
    return ", ".join(_field_names(model))


def _field_names(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Keys of the (nested) table at a location, following field types."""
    current: type[BaseModel] = model
    for part in location:
        if isinstance(part, int):
            continue
        info = next((info for name, info in current.model_fields.items() if part in (name, info.alias)), None)
        nested = _model_in(info.annotation) if info else None
        if nested is None:
            return []
        current = nested
    return _field_names(current)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The table type inside `X`, `X | None`, `list[X]` or `Annotated[X, …]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, list, Annotated):
        for inner in get_args(annotation):
            if (found := _model_in(inner)) is not None:
                return found
    return None
