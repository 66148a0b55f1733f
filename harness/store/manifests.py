"""manifest.json of thousands of blocks in memory: what they have in common once, their lists of files not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from harness.store.verifying import listed_files, read_json
from harness.store.writer import MANIFEST


class FileDigests(Mapping[str, str]):
    """File name → SHA-256 of one block, read from its manifest when asked for; `copy.copy` gives a plain dictionary.

    Ten thousand lists of 170 files would fill half a GiB. Reading the folder has compared the files with these digests
    and the manifest with the log of committed blocks.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __copy__(self) -> dict[str, str]:
        manifest, _, _ = read_json(self._folder / MANIFEST)
        try:
            return {name: entry["sha256"] for name, entry in manifest["files"].items()}
        except (KeyError, TypeError, AttributeError):  # not as this program writes it
            return {name: sha256 for name, (sha256, _) in listed_files(manifest).items() if sha256 is not None}

    def items(self) -> Any:
        """All of them, in one reading of the manifest."""
        return self.__copy__().items()

    def __getitem__(self, name: str) -> str:
        return self.__copy__()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__copy__())

    def __len__(self) -> int:
        return len(self.__copy__())

    def __bool__(self) -> bool:
        # A manifest lists at least its tables; whether one lists anything is not worth reading it.
        return True


class Shared:
    """Parses manifests so that equal texts and lists within them are one object."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._lists: dict[bytes, list[Any]] = {}

    def parsed(self, manifest: bytes) -> dict[str, Any]:
        """One manifest; it must be a JSON object."""
        value: dict[str, Any] = orjson.loads(manifest)
        return {key: self._share(child) for key, child in value.items()}

    def _share(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._texts.setdefault(value, value)
        if isinstance(value, list):
            return self._lists.setdefault(orjson.dumps(value), value)
        if isinstance(value, dict):
            return {key: self._share(child) for key, child in value.items()}
        return value
