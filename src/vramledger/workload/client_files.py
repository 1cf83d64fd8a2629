"""Names of the two tables that tell of clients by time (see `columnar/client_windows.py`)."""

from __future__ import annotations

from pathlib import Path

RATES_ENDING, PDFS_ENDING = ".rates.parquet", ".pdfs.parquet"


def is_client_rates(path: Path) -> bool:
    """Whether a path is one of a table of clients' rates, by its name."""
    return path.name.endswith(RATES_ENDING)


def pdfs_beside(path: Path) -> Path:
    """The table of lengths that belongs to a table of rates."""
    return path.with_name(path.name.removesuffix(RATES_ENDING) + PDFS_ENDING)
