"""A picture in a file."""

from __future__ import annotations


def draw(name: str, svg: str) -> None:
    """Write `svg`. Raises OutputError where it cannot be written."""
    from pathlib import Path

    from vramledger.whole_file import write_whole

    write_whole(Path(name), svg.encode())
