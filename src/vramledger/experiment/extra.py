"""What an experiment says where its libraries are missing."""

from __future__ import annotations

from vramledger.errors import InputError


def not_installed(problem: ImportError) -> InputError:
    """The error for a library of the extra `experiment` that could not be imported."""
    return InputError(
        f"an experiment needs {problem.name}, which is not installed: pip install 'vramledger[experiment]'",
        library=problem.name,
    )
