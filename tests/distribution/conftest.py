"""What these tests share: built once and installed once, also where several processes run them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.distributions import Distributions

from clean_install import CleanInstall
from tools import distributions

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the processes of one run have in common."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "packaging"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def clone(shared_folder: Path) -> Path:
    target = shared_folder / "clone"
    _once(target, lambda: distributions.clone(ROOT, target))
    return target


@pytest.fixture(scope="session")
def built(clone: Path, shared_folder: Path) -> Distributions:
    target = shared_folder / "dist"
    _once(target, lambda: distributions.build(clone, target))
    return Distributions(wheel=next(target.glob("*.whl")), sdist=next(target.glob("*.tar.gz")))


@pytest.fixture(scope="session")
def installed(built: Distributions, shared_folder: Path) -> CleanInstall:
    target = shared_folder / "installed"
    _once(target, lambda: CleanInstall.make(target, built.wheel))
    return CleanInstall(target)


def _once(target: Path, make: Callable[[], object]) -> None:
    """Make `target` unless another process of this run has: it is complete when its mark is there."""
    with _locked(target.with_suffix(".lock")):
        mark = target.with_suffix(".made")
        if not mark.exists():
            make()
            mark.touch()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
