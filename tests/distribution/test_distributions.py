"""What is built from a clone: what is in it, what is not, and that the same sources give the same bytes."""

from __future__ import annotations

import json
import os
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

from packaging.version import Version
from tools.distributions import Distributions, build_wheel

import vramledger
from clean_install import metadata_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DATA = (
    ".json",
    ".toml",
    ".lua",
    ".typed",
    ".html",
    ".js",
    ".css",
    ".svg",
    ".csv.gz",
    ".jsonl.gz",
    ".txt",
    ".woff2",
    ".png",
    ".ico",
    ".md",
)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_package_and_its_licence(built: Distributions, clone: Path) -> None:
    source = clone / "src"
    there = {
        path.relative_to(source).as_posix() for path in (source / "vramledger").rglob("*") if path.is_file()
    }
    assert {
        "vramledger/py.typed",
        "vramledger/hardware/devices.json",
        "vramledger/models/builtin/models.json",
    } <= there
    info = f"vramledger-{vramledger.__version__}.dist-info"
    licences = {f"src/{name}" for name in there if re.search(r"/vendor/\w+\.(LICENSE|NOTICE)", name)}
    assert len(licences) >= 4
    assert names_in(built.wheel) == there | {
        *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")),
        *(f"{info}/licenses/{name}" for name in ("LICENSE", *licences)),
    }


def test_the_wheel_has_nothing_else(built: Distributions) -> None:
    for name in names_in(built.wheel):
        assert name.startswith(("vramledger/", "vramledger-"))
        assert "/tests/" not in name and "__pycache__" not in name
        licence = re.search(r"/vendor/[a-z]+\.(LICENSE|NOTICE)", name)
        assert name.endswith((".py", *DATA)) or ".dist-info/" in name or licence, (
            f"{name}: what is this file for?"
        )
    assert built.wheel.stat().st_size < 8 * 2**20


def test_the_sdist_has_the_sources_and_tests_and_no_working_files(built: Distributions) -> None:
    with tarfile.open(built.sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    tops = {name.partition("/")[0] for name in names}
    assert {"src", "tests", "tools", "data", "docs", "examples", "schema", "deploy", "requirements"} <= tops
    assert {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"} <= tops
    assert not {top for top in tops if top.startswith(".") and top != ".gitignore"}
    assert not {"build", "dist", "shared"} & tops
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|\.egg-info|\.so$", name)]


def test_the_sdist_builds_the_same_wheel(built: Distributions, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = next(path for path in tmp_path.iterdir() if path.is_dir())
    again = build_wheel(unpacked, tmp_path / "out")
    assert again.name == built.wheel.name
    assert again.read_bytes() == built.wheel.read_bytes()


def test_times_and_modes_of_files_do_not_reach_the_wheel(
    built: Distributions, clone: Path, tmp_path: Path
) -> None:
    """One file is touched and closed to others, as another umask would: the bytes stay, unless SOURCE_DATE_EPOCH says otherwise."""
    path = clone / "src" / "vramledger" / "units.py"
    state = path.stat()
    try:
        os.utime(path, (0, 1_000_000_000))
        path.chmod(0o600)
        again = build_wheel(clone, tmp_path)
    finally:
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        path.chmod(state.st_mode)
    assert again.read_bytes() == built.wheel.read_bytes()


def test_the_version_is_written_once(built: Distributions) -> None:
    metadata = metadata_of(built.wheel)
    assert metadata["Version"] == vramledger.__version__
    assert str(Version(vramledger.__version__)) == vramledger.__version__
    assert PROJECT["dynamic"] == ["version"]
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        assert not re.match(r"version\s*=", line)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?(Unreleased|{re.escape(vramledger.__version__)})", changes, flags=re.MULTILINE)


def test_the_metadata_says_what_the_project_says(built: Distributions) -> None:
    metadata = metadata_of(built.wheel)
    vendored = json.loads(
        (ROOT / "src/vramledger/web/static/vendor/vendored.json").read_text(encoding="utf-8")
    )
    licences = {"Apache-2.0", *(entry["licence"] for entry in vendored)}
    assert set(metadata["License-Expression"].split(" AND ")) == licences
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
    plain = [line for line in metadata.get_all("Requires-Dist") or () if "extra ==" not in line]
    assert len(plain) == len(PROJECT["dependencies"])
    assert "# vramledger" in str(metadata.get_payload())
