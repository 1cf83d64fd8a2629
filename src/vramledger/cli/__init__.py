"""The `vramledger` command.

Exit codes: 0 answered, and a plan holds; 10 a plan does not hold; 11 it cannot be told; 2 something given is
wrong; 3 an architecture or format without a description here; 4 a file or hub that could not be read; 74
the output cannot be written; 130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

GARBAGE_THRESHOLD = 100_000
"""Objects between collections: a command is short, and loading its modules makes no cycles worth looking for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (this process's own by default) and return its exit code."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    from vramledger.cli.app import run

    return run(arguments)
