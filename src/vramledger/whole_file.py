"""Files that appear whole or not at all: written beside their place and moved there at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from vramledger.errors import OutputError


@contextmanager
def whole_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` when the block ends, and leaves nothing behind when it fails.

    Raises OSError where it cannot be written; FileExistsError, without `replace`, where there is a file already.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """A file of `data` in the place of `path`. Raises OutputError where it cannot be written."""
    try:
        with whole_file(path) as file:
            file.write(data)
    except (OSError, ValueError) as problem:
        raise unwritten(path, problem) from None


def write_document_file(document: msgspec.Struct, path: Path) -> None:
    """A published document as indented JSON in a file. Raises OutputError where it cannot be written."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def unwritten(path: Path, problem: OSError | ValueError) -> OutputError:
    """The error for a file that could not be written; a path with a NUL is a ValueError."""
    return OutputError(f"{path}: {getattr(problem, 'strerror', None) or problem}")
