"""Files that are either whole or absent: temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from harness.model.errors import StoreError

_SMALL = 65_536
_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an OSError (disk full, permission) into a StoreError that names the file and the next step."""
    try:
        yield
    except OSError as error:
        words = f"cannot write {path}: {error.strerror or error}"
        raise StoreError(words, hint="Free space or fix permissions, then `kvabba run NAME --resume RUN`.") from error


def to_json(value: Mapping[str, Any]) -> bytes:
    """Indented JSON with sorted keys and a newline at its end."""
    return orjson.dumps(value, option=_JSON)


def write_whole(path: Path, data: bytes) -> None:
    """Write bytes so that after any crash the file is the old one or the new one, never a part."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one JSON line and wait until it is on the disk."""
    with storing(path), path.open("ab") as file:
        file.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Wait until the directory's names are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def file_entry(path: Path) -> dict[str, Any]:
    """SHA-256 and size of a file as the manifest lists them."""
    with path.open("rb") as file:
        value = hashlib.file_digest(file, "sha256")
        return {"sha256": value.hexdigest(), "bytes": file.tell()}


def list_files(folder: Path) -> dict[str, str]:
    """Every regular file below the folder: relative POSIX name → path. Temporary (dot) files are not listed.

    Plain strings and `scandir`, because a large folder holds a million files.
    """
    out: dict[str, str] = {}
    _list_into(out, str(folder), "")
    return out


def _list_into(out: dict[str, str], folder: str, prefix: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                _list_into(out, entry.path, f"{prefix}{entry.name}/")
            else:
                out[prefix + entry.name] = entry.path


def read_file(path: str, *, listed: object = None) -> bytes:
    """All bytes of a file, without a buffer in between.

    `listed` is its size as a manifest notes it: where it is true of a small file, it saves a call. It may be anything.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, listed + 1) if isinstance(listed, int) and 0 < listed < _SMALL else b""
        if data and len(data) == listed:
            return data
        size = os.fstat(descriptor).st_size
        data += os.read(descriptor, size + 1)
        while len(data) < size and (more := os.read(descriptor, size - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)
