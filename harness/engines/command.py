"""What an argv builder returns, and how it reads `engine.options`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.model.errors import ConfigError, Issue

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line and the environment it needs, both with placeholders.

    The digest of a fingerprint is taken over this form: ports, paths of the machine and log folders are not in it.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class Options:
    """Reads the declared `engine.options`; every key that no reader asked for is an error, and so is a wrong type."""

    def __init__(self, options: Mapping[str, Any], *, kind: str) -> None:
        self._options = options
        self._kind = kind
        self._known: set[str] = set()
        self._issues: list[Issue] = []

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self._take(key, default)
        return value if isinstance(value, str) else self._wrong(key, "a string", default)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, () where it is not declared."""
        value = self._take(key, ())
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value)
        return self._wrong(key, "a list of strings", ())

    def table(self, key: str) -> Mapping[str, Any]:
        """A table, {} where it is not declared."""
        value = self._take(key, {})
        return value if isinstance(value, Mapping) else self._wrong(key, "a table", {})

    def finish(self) -> None:
        """Raise one ConfigError with everything that was wrong."""
        issues = [
            Issue(
                path=f"engine.options.{key}",
                message=f"unknown option of engine kind {self._kind!r}",
                allowed=", ".join(sorted(self._known)),
            )
            for key in self._options
            if key not in self._known
        ]
        if issues or self._issues:
            raise ConfigError("engine.options", [*self._issues, *issues])

    def _take(self, key: str, default: object) -> Any:
        self._known.add(key)
        value = self._options.get(key)
        return default if value is None else value

    def _wrong(self, key: str, allowed: str, default: T) -> T:
        self._issues.append(Issue(path=f"engine.options.{key}", message=f"must be {allowed}", allowed=allowed))
        return default


def compact_json(value: object) -> str:
    """JSON with sorted keys and no spaces, so that an argument is the same in every launch."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
