"""Placeholders of command lines and environments, such as `{port}` and `{service.pool.url}`.

Strategy: only `{lower_case}` and `{service.NAME.field}` are placeholders. JSON in an argument (`{"kv_role": …}`) is
left alone, because after its brace stands a quote. An unknown placeholder is an error of the declaration, never an
empty string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.model.errors import ConfigError, Issue

_PLACEHOLDER = re.compile(r"\{([a-z][a-z_]*(?:\.[A-Za-z0-9_-]+)*)\}")


def names(text: str) -> tuple[str, ...]:
    """Placeholders that stand in `text`, in order, without braces."""
    return tuple(_PLACEHOLDER.findall(text))


def expand(text: str, values: Mapping[str, str], *, path: str, issues: list[Issue]) -> str:
    """`text` with every placeholder replaced; an unknown one stays and is added to `issues` under `path`."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in values:
            return values[name]
        issues.append(Issue(path=path, message=f"unknown placeholder {{{name}}}", allowed=_allowed(values)))
        return match.group(0)

    return _PLACEHOLDER.sub(replace, text)


def expand_all(texts: Sequence[str], values: Mapping[str, str], *, path: str, issues: list[Issue]) -> tuple[str, ...]:
    """`expand` over an argument list; issues name the position."""
    return tuple(expand(text, values, path=f"{path}[{index}]", issues=issues) for index, text in enumerate(texts))


def expand_env(env: Mapping[str, str], values: Mapping[str, str], *, path: str, issues: list[Issue]) -> dict[str, str]:
    """`expand` over the values of an environment; issues name the variable."""
    return {key: expand(text, values, path=f"{path}.{key}", issues=issues) for key, text in env.items()}


def raise_if_any(issues: Sequence[Issue], *, source: str) -> None:
    """Raise one ConfigError with every issue, if there is one."""
    if issues:
        raise ConfigError(source, issues)


def _allowed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(values))
