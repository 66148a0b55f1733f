"""A run's folder: created once, held by one process, its log of committed blocks append-only."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson

from harness.model.errors import ConfigError, Issue, LockedError, StoreError
from harness.store import durable
from harness.store.writer import MANIFEST, REASON, BlockWriter

if TYPE_CHECKING:
    from types import TracebackType

HEADER = "run.json"
DECLARATION = "declaration.json"
LOG = "blocks.jsonl"
LOCK = ".lock"
_BLOCK = re.compile(r"(\d+)-(.+)")
_PARTIAL = re.compile(r"\.(\d+)-(.+)\.partial")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One block that is committed and recorded in the run's log."""

    position: int
    arm: str
    manifest_sha256: str


class RunFolder:
    """`results/<screening>/<run>/`, or `results/<screening>/loose/<run>/` for single blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = ExitStack()

    @classmethod
    def create(
        cls,
        results: Path,
        screening: str,
        run: str,
        *,
        header: Mapping[str, Any],
        declaration: bytes,
        loose: bool = False,
    ) -> RunFolder:
        """Make a new, locked folder with its header and declaration; a second run within a second gets a suffix."""
        parent = results / screening / "loose" if loose else results / screening
        with durable.storing(parent):
            parent.mkdir(parents=True, exist_ok=True)
        held = ExitStack()
        _flock(held, parent / LOCK)
        folder = cls(_fresh(parent, run))
        folder._held = held
        folder.lock()
        durable.write_whole(folder.path / DECLARATION, declaration)
        durable.write_whole(folder.path / HEADER, durable.to_json({**header, "run": folder.run, "loose": loose}))
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing folder, not locked; a ConfigError where it is none."""
        if not (path / DECLARATION).is_file():
            raise ConfigError(str(path), [Issue(path="run", message="no run folder: it has no declaration.json")])
        return cls(path)

    @property
    def run(self) -> str:
        """The run's id: the folder's name."""
        return self.path.name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def lock(self) -> None:
        """Hold the folder until `release`; LockedError (exit code 7) where another process holds it."""
        _flock(self._held, self.path / LOCK)

    def release(self) -> None:
        """Let go of the locks."""
        self._held.close()

    def header(self) -> dict[str, Any]:
        """run.json as parsed."""
        value: dict[str, Any] = orjson.loads((self.path / HEADER).read_bytes())
        return value

    def amend(self, **values: Any) -> None:
        """Set fields of run.json, such as how the run ended."""
        durable.write_whole(self.path / HEADER, durable.to_json({**self.header(), **values}))

    def declaration(self) -> bytes:
        """The canonical declaration as it was when the run was made."""
        return (self.path / DECLARATION).read_bytes()

    def writer(self, position: int, arm: str) -> BlockWriter:
        """Start a block; what an earlier attempt left behind must have been superseded first."""
        return BlockWriter(self.path / "blocks" / f".{block_name(position, arm)}.partial")

    def commit(self, writer: BlockWriter, position: int, arm: str, manifest: Mapping[str, Any]) -> str:
        """Seal the block, give it its name and record it; returns the manifest's SHA-256."""
        target = self.path / "blocks" / block_name(position, arm)
        if target.exists():
            raise StoreError(f"{target} exists already", hint="Supersede it first: `kvabba run NAME --resume RUN`.")
        sha256 = writer.seal(manifest)
        self._move(writer.path, target)
        self._log("committed", position, arm, sha256)
        return sha256

    def exclude(
        self, writer: BlockWriter, position: int, arm: str, manifest: Mapping[str, Any], reason: Mapping[str, Any]
    ) -> Path:
        """Archive a voided block whole under `excluded/NN-<arm>-<k>/` with its reason; returns the new folder."""
        sha256 = writer.seal(manifest, reason)
        target = self._numbered("excluded", position, arm)
        self._move(writer.path, target)
        self._log("excluded", position, arm, sha256)
        return target

    def supersede(self, position: int, arm: str, reason: Mapping[str, Any]) -> list[Path]:
        """Move what exists of a block, committed or partial, to `superseded/NN-<arm>-<k>/`; returns the new folders."""
        name, moved = block_name(position, arm), []
        for source in (self.path / "blocks" / name, self.path / "blocks" / f".{name}.partial"):
            if source.is_dir():
                manifest = source / MANIFEST
                sha256 = durable.digest(manifest.read_bytes()) if manifest.is_file() else None
                target = self._numbered("superseded", position, arm)
                durable.write_whole(source / REASON, durable.to_json(reason))
                self._move(source, target)
                self._log("superseded", position, arm, sha256)
                moved.append(target)
        return moved

    def drop_partial(self, position: int, arm: str) -> None:
        """Remove a partial block in which nothing was measured (an engine that did not start); keep its logs."""
        source = self.path / "blocks" / f".{block_name(position, arm)}.partial"
        target = self.path / "logs" / f"failed-start-{block_name(position, arm)}"
        with durable.storing(target):
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(exist_ok=True)
            (source / "logs").replace(target)
            shutil.rmtree(source)

    def committed(self) -> tuple[Committed, ...]:
        """Blocks that lie in `blocks/` and whose manifest the log records, by position."""
        recorded = {entry.manifest_sha256 for entry in current(read_log(self.path))}
        found = []
        for position, arm, path in block_folders(self.path / "blocks"):
            with suppress(FileNotFoundError):
                sha256 = durable.digest((path / MANIFEST).read_bytes())
                if sha256 in recorded:
                    found.append(Committed(position=position, arm=arm, manifest_sha256=sha256))
        return tuple(found)

    def leftovers(self) -> tuple[tuple[int, str], ...]:
        """(position, arm) of everything in `blocks/` that is not committed and recorded."""
        known = {(entry.position, entry.arm) for entry in self.committed()}
        names = [path.name for path in (self.path / "blocks").glob(".*.partial")]
        partial = [(int(m[1]), m[2]) for name in names if (m := _PARTIAL.fullmatch(name))]
        whole = [(position, arm) for position, arm, _ in block_folders(self.path / "blocks")]
        return tuple(sorted(set(partial) | (set(whole) - known)))

    def _log(self, event: str, position: int, arm: str, sha256: str | None) -> None:
        entry = {"event": event, "position": position, "arm": arm, "manifest_sha256": sha256}
        durable.append_line(self.path / LOG, entry)

    def _numbered(self, kind: str, position: int, arm: str) -> Path:
        k = 1
        while (target := self.path / kind / f"{block_name(position, arm)}-{k}").exists():
            k += 1
        return target

    @staticmethod
    def _move(source: Path, target: Path) -> None:
        with durable.storing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
            durable.sync_directory(target.parent)
            durable.sync_directory(source.parent)


def block_name(position: int, arm: str) -> str:
    """`01-off`: sorts by position up to 99 blocks, and by number beyond."""
    return f"{position:02d}-{arm}"


def block_folders(blocks: Path) -> list[tuple[int, str, Path]]:
    """(position, arm, path) of every block folder, by position; partial (dot) folders do not match."""
    if not blocks.is_dir():
        return []
    with os.scandir(blocks) as entries:
        matches = [(m, entry.path) for entry in entries if (m := _BLOCK.fullmatch(entry.name))]
    return sorted((int(m[1]), m[2], Path(path)) for m, path in matches)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of `blocks.jsonl`; a line cut short by a crash ends the log."""
    log = path / LOG
    lines: list[dict[str, Any]] = []
    if log.is_file():
        with suppress(orjson.JSONDecodeError):
            lines.extend(orjson.loads(line) for line in log.read_bytes().splitlines() if line)
    return lines


def current(log: list[dict[str, Any]]) -> list[Committed]:
    """The committed blocks after the whole log: later events of a position replace earlier ones."""
    latest: dict[int, Committed] = {}
    for entry in log:
        position = entry["position"]
        if entry["event"] == "committed":
            latest[position] = Committed(position=position, arm=entry["arm"], manifest_sha256=entry["manifest_sha256"])
        elif entry["event"] == "superseded":
            latest.pop(position, None)
    return [latest[position] for position in sorted(latest)]


def _fresh(parent: Path, run: str) -> Path:
    for suffix in ("", *(f"-{k}" for k in range(2, 100))):
        path = parent / f"{run}{suffix}"
        with durable.storing(path), suppress(FileExistsError):
            path.mkdir()
            return path
    raise StoreError(f"{parent} already holds a hundred runs named {run}")


def _flock(held: ExitStack, path: Path) -> None:
    with durable.storing(path):
        file = path.open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        hint = "Wait for it to end; its progress shows in its own terminal."
        raise LockedError(f"another run holds {path.parent}", hint=hint) from None
    held.enter_context(file)
