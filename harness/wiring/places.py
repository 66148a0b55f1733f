"""Where things lie: the project's root, results, caches."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from harness.model.errors import ConfigError, Issue

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: `blocks/`, `fixtures/` and relative paths of declarations are looked up here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Folders of one invocation; `KVABBA_RESULTS` moves the results elsewhere."""

    root: Path = ROOT
    results: Path = ROOT / "results"
    fixtures_cache: Path = ROOT / ".cache" / "fixtures"

    @property
    def floors(self) -> Path:
        """Kept A/A noise floors, by fingerprint."""
        return self.results / "floors.json"

    @classmethod
    def from_environment(cls) -> Places:
        """The default places, with what the environment overrides."""
        results = os.environ.get("KVABBA_RESULTS")
        return cls(results=Path(results).absolute()) if results else cls()

    def run_folder(self, screening: str, run: str) -> Path:
        """The folder of a run, given its id or its path."""
        path = Path(run)
        return path if len(path.parts) > 1 or path.is_dir() else self.results / screening / run

    def existing(self, folder: Path) -> Path:
        """A folder as given, or below the results; ConfigError where neither exists."""
        for path in (folder, self.results / folder):
            if path.is_dir():
                return path
        issue = Issue(path=str(folder), message="there is no such folder", allowed=f"a run below {self.results}")
        raise ConfigError("results", [issue])

    def runs(self, screening: str) -> list[Path]:
        """Folders of all runs of a screening, oldest first; loose blocks are not among them."""
        parent = self.results / screening
        if not parent.is_dir():
            return []
        return sorted(path for path in parent.iterdir() if (path / "declaration.json").is_file())
