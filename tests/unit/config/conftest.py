from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from harness.config import BLOCKS, from_document
from harness.model.errors import ConfigError, Issue


@pytest.fixture
def document() -> dict[str, Any]:
    """A whole, valid declaration to be spoilt."""
    return copy.deepcopy(tomllib.loads((BLOCKS / "quick.toml").read_text(encoding="utf-8")))


@pytest.fixture
def issues_of() -> Callable[[dict[str, Any]], dict[str, Issue]]:
    """The issues of a document by path; fails where the document is accepted."""

    def read(document: dict[str, Any]) -> dict[str, Issue]:
        with pytest.raises(ConfigError) as caught:
            from_document(document)
        return {issue.path: issue for issue in caught.value.issues}

    return read
