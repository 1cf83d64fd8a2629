"""A picture in a file."""

from __future__ import annotations


def draw(name: str, svg: str) -> None:
    """Write `svg`. Raises OutputError where it cannot be written."""
    from pathlib import Path

    from vramledger.whole_file import unwritten, whole_file

    try:
        with whole_file(Path(name)) as out:
            out.write(svg.encode())
    except (OSError, ValueError) as problem:
        raise unwritten(Path(name), problem) from None
