"""Each peer in an environment of its own, `.venv-peer-NAME`, built from the pins in `requirements/NAME.txt`.

An environment is built once: a stamp holds the hash of the pins. Nothing of it is a dependency of the project. Whatever
goes wrong becomes a reason in words, which the table prints in the place of the peer's figures.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
_NEWER = ("3.12", "3.13", "3.14")
_INSTALL_LIMIT_S = 1800


class NotInstallable(Exception):
    """The reason, fit for the table."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a peer lives. `python` is its interpreter."""

    name: str
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def script(self, name: str) -> str:
        return str(self.folder / "bin" / name)


def environment(name: str, *, needs: tuple[int, int] = (3, 11), no_dependencies: bool = False) -> Environment:
    """Build what is missing and return it. Raises NotInstallable."""
    pins = HERE / "requirements" / f"{name}.txt"
    made = Environment(name=name, folder=ROOT / f".venv-peer-{name}")
    stamp, wish = made.folder / ".pins", hashlib.sha256(pins.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wish:
        return made
    interpreter = _interpreter(needs)
    sys.stdout.write(f"installing {name} into {made.folder.name} …\n")
    sys.stdout.flush()
    _call([interpreter, "-m", "venv", str(made.folder)])
    only = ["--no-deps"] if no_dependencies else []
    _call([made.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *only, "-r", str(pins)])
    stamp.write_text(wish)
    return made


def version_of(name: str) -> str:
    """The pinned version of the peer itself: the first pin of its file."""
    for line in (HERE / "requirements" / f"{name}.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            return line.split("==")[1].split()[0].strip()
    raise NotInstallable(f"requirements/{name}.txt pins nothing")


def _interpreter(needs: tuple[int, int]) -> str:
    if sys.version_info[:2] >= needs:
        return sys.executable if sys.prefix == sys.base_prefix else _base_interpreter()
    for version in _NEWER:
        if tuple(map(int, version.split("."))) < needs:
            continue
        found = shutil.which(f"python{version}")
        candidates = [found] if found else []
        candidates += map(str, sorted(_pyenv().glob(f"versions/{version}.*/bin/python")))
        for candidate in candidates:
            if subprocess.run([candidate, "-c", "import venv, ensurepip, ssl"], check=False).returncode == 0:
                return candidate
    raise NotInstallable(f"needs Python {needs[0]}.{needs[1]} or newer, and this machine has none")


def _base_interpreter() -> str:
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def _call(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstallable(f"installing took longer than {_INSTALL_LIMIT_S} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or ["ERROR: no reason given"]
        raise NotInstallable(plain(lines[-1].removeprefix("ERROR: ")))


def plain(reason: str) -> str:
    """One line without paths and addresses."""
    reason = re.sub(r"\S*://\S+", "…", reason)
    return re.sub(r"(?:/[\w.+-]+){2,}", "…", reason).strip()[:300]
