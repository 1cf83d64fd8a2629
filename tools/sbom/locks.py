"""What the locks pin, and what asks for what, on the machine that the images are of: Linux on x86_64, the Python of their base."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
BASE = re.compile(r"^ARG PYTHON=(\S+:(3\.\d+)\.\d+\S*)$", re.MULTILINE)

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Pinned(Struct, frozen=True, kw_only=True):
    """One distribution of a lock. `sha256` are those of all files that its version was published as."""

    name: str
    version: str
    sha256: tuple[str, ...]


def base_image() -> str:
    """The image that the containers begin with."""
    return _base()[0]


@cache
def environment() -> dict[str, str]:
    """Values of the markers of the images' machine."""
    minor = _base()[1]
    return {
        "implementation_name": "cpython", "os_name": "posix", "platform_machine": "x86_64", "platform_system": "Linux",
        "platform_python_implementation": "CPython", "python_full_version": f"{minor}.0", "python_version": minor,
        "sys_platform": "linux", "extra": "",
    }  # fmt: skip


def project() -> dict[str, Any]:
    """`[project]` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def lock(name: str) -> dict[str, Pinned]:
    """What requirements/NAME.txt pins for the images' machine, by name."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    found: dict[str, Pinned] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        if not entry.strip():
            continue
        requirement = Requirement(entry.partition(" --hash")[0].strip())
        if requirement.marker is not None and not requirement.marker.evaluate(environment()):
            continue
        (specifier,) = requirement.specifier
        key = canonicalize_name(requirement.name)
        hashes = tuple(sorted(_HASH.findall(entry)))
        found[key] = Pinned(name=requirement.name, version=specifier.version, sha256=hashes)
    return found


def wanted(lines: Iterable[str]) -> set[str]:
    """Names of what requirements bring with them on the images' machine; what is not installed here is taken to bring nothing."""
    found: set[str] = set()
    todo = [Requirement(line) for line in lines]
    done: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate(environment()):
            continue
        found.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in done:
                done.add((name, extra))
                todo += [item for item in _requires(name) if _is_asked(item, extra)]
    return found


def direct(name: str) -> set[str]:
    """Names that one installed distribution asks for itself, without an extra."""
    return {canonicalize_name(item.name) for item in _requires(name) if _is_asked(item, "")}


def extras() -> dict[str, tuple[str, ...]]:
    """Requirements of each extra, those of the extras it consists of in their place."""
    declared: Mapping[str, list[str]] = project()["optional-dependencies"]

    def lines_of(name: str) -> Iterable[str]:
        for line in declared[name]:
            requirement = Requirement(line)
            if canonicalize_name(requirement.name) == "vramledger":
                for inner in sorted(requirement.extras):
                    yield from lines_of(inner)
            else:
                yield line

    return {name: tuple(lines_of(name)) for name in declared}


def image_extras(image: str) -> tuple[str, ...]:
    """The extras that `make lock` puts into an image's lock."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{image.upper()}_EXTRAS := (.+)$", makefile, re.MULTILINE)
    if found is None:
        raise SystemExit(f"the Makefile has no {image.upper()}_EXTRAS")
    return tuple(found[1].split())


@cache
def _requires(name: str) -> tuple[Requirement, ...]:
    try:
        return tuple(map(Requirement, importlib.metadata.requires(name) or ()))
    except importlib.metadata.PackageNotFoundError:
        return ()


def _is_asked(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**environment(), "extra": extra})


@cache
def _base() -> tuple[str, str]:
    text = (ROOT / "deploy" / "container" / "Containerfile").read_text(encoding="utf-8")
    found = BASE.search(text)
    if found is None:
        raise SystemExit("deploy/container/Containerfile: no ARG PYTHON=IMAGE:VERSION")
    return found[1], found[2]
