"""Where machine code is kept for the next process. Asks nothing of numba, so that who must only know the place does not load it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def kept_folder() -> Path:
    """This project's folder among the user's caches; it need not exist. Raises RuntimeError where there is no home."""
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "vramledger"
