"""An environment that has the built wheel, what it requires, and nothing else.

What it requires is copied from the environment of the tests, where it was installed from the lock, so no network is needed;
the wheel itself is installed by pip.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import venv
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PATIENCE_S = 240


class CleanInstall:
    """An environment that was made: `python` and `script` are its own, `run` runs the latter away from the sources."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "bin" / "python"
        self.script = folder / "bin" / "vramledger"
        self.packages = next((folder / "lib").glob("python3*/site-packages"))

    @classmethod
    def make(cls, folder: Path, wheel: Path) -> CleanInstall:
        venv.create(folder, with_pip=True)
        made = cls(folder)
        copy_distributions(required_by(wheel), made.packages)
        pip = [str(made.python), "-m", "pip", "--disable-pip-version-check"]
        install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(wheel)]
        subprocess.run([*pip, *install], check=True, timeout=PATIENCE_S)
        return made

    def run(
        self, *arguments: str | Path, cwd: Path, extra_path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The console script. `extra_path` is a folder with more distributions."""
        return self._run([str(self.script), *map(str, arguments)], cwd, extra_path)

    def python_run(
        self, *arguments: str | Path, cwd: Path, extra_path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.python), *map(str, arguments)], cwd, extra_path)

    def _run(
        self, command: list[str], cwd: Path, extra_path: Path | None
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        environment = {**kept, "HOME": str(cwd), "HF_HUB_OFFLINE": "1"}
        if extra_path is not None:
            environment["PYTHONPATH"] = str(extra_path)
        return subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )


def metadata_of(wheel: Path) -> Message:
    """The METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(archive.read(name))


def required_by(wheel: Path, extra: str = "") -> set[str]:
    """Names of all distributions that a plain install of the wheel (with one extra, if any) brings on this machine."""
    lines = metadata_of(wheel).get_all("Requires-Dist") or []
    return set(_closure(lines, extra, seen=set()))


def _closure(lines: Iterable[str], extra: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        yield name
        for inner in ("", *requirement.extras):
            if (name, inner) not in seen:
                seen.add((name, inner))
                yield from _closure(importlib.metadata.requires(name) or (), inner, seen)


def copy_distributions(names: Iterable[str], to: Path) -> None:
    """Installed distributions with their metadata into a folder of packages."""
    for source, target in _files(names, to):
        shutil.copy2(source, target)


def link_distributions(names: Iterable[str], to: Path) -> None:
    """The same without a byte copied: for large ones, in a folder that nothing writes to."""
    for source, target in _files(names, to):
        target.symlink_to(source)


def _files(names: Iterable[str], to: Path) -> Iterator[tuple[Path, Path]]:
    for name in sorted(set(names)):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            target = to / file
            target.parent.mkdir(parents=True, exist_ok=True)
            yield Path(str(distribution.locate_file(file))), target
