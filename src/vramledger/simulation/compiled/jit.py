"""Compilation to machine code, kept for the next process where there is a place to keep it.

numba asks only whether the one file of a function has changed, not those of the functions it calls. So kept code lies in a folder named
after all sources of this package: other sources, other folder. Where no folder may be written, each process
compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba as typed_numba

from vramledger.simulation.compiled.kept import kept_folder

numba: Any = typed_numba
F = TypeVar("F", bound=Callable[..., Any])

CHECK_BOUNDS = os.environ.get("VRAMLEDGER_CHECK_BOUNDS") == "1"
"""Whether every access to an array is checked: for tests, at a tenth of the speed."""


def _kept_in() -> Path | None:
    digest = hashlib.sha256(f"{numba.__version__} {sys.version} {CHECK_BOUNDS}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    folder = kept_folder() / f"compiled-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


try:
    FOLDER = _kept_in()
except (OSError, RuntimeError):  # no home directory, or sources that lie in no folder
    FOLDER = None


def compiled(function: F) -> F:
    """`function` as machine code, for other compiled functions alone: it has no way in from Python."""
    made = numba.njit(
        nogil=True,
        error_model="numpy",
        boundscheck=CHECK_BOUNDS,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)
    return cast("F", made)


def entry(function: F) -> F:
    """`function` as machine code that Python may call. It is kept with all that it calls."""
    before = numba.config.CACHE_DIR
    try:
        if FOLDER is not None:
            numba.config.CACHE_DIR = str(FOLDER)
        made = numba.njit(
            cache=FOLDER is not None, nogil=True, error_model="numpy", boundscheck=CHECK_BOUNDS
        )(function)
    finally:
        numba.config.CACHE_DIR = before
    _mind_damage(made)
    return cast("F", made)


def _mind_damage(made: Any) -> None:
    """What was kept and cannot be read (a full disk, a copy that was cut) is compiled anew instead of ending the run."""
    kept: Any = getattr(made, "_cache", None)
    load = getattr(kept, "load_overload", None)
    if load is None:
        return

    def load_or_not(signature: Any, target: Any) -> Any:
        try:
            return load(signature, target)
        except Exception:
            kept.flush()
            return None

    kept.load_overload = load_or_not
