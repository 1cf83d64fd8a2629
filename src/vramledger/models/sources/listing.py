"""The files of one model, wherever they lie: a folder, the hub's cache, or the hub itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.errors import SourceError
from vramledger.models.sources.bounded_file import shown

if TYPE_CHECKING:
    from vramledger.models.sources.header_table import HeaderTable

MAX_FILES = 20_000


class Listing(Struct, frozen=True, kw_only=True):
    """File names with their sizes in bytes (None: not known), and the two ways to read them.

    `fetch(name)` gives the local path of a small file; `read_headers(names)` the table of safetensors files,
    of which only the headers are read. Both raise SourceError where that cannot be done.
    """

    id: str
    where: str
    sizes: Mapping[str, int | None]
    fetch: Callable[[str], Path]
    read_headers: Callable[[list[str]], HeaderTable]
    size_source: str
    is_local: bool
    notes: tuple[str, ...] = ()


def folder_listing(folder: Path, *, model_id: str | None = None, notes: tuple[str, ...] = ()) -> Listing:
    """The regular files of a folder (symbolic links followed, sub-folders left out).

    Raises SourceError where it cannot be listed or holds more files than any model.
    """
    sizes: dict[str, int | None] = {}
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries, start=1):
                if count > MAX_FILES:
                    raise SourceError(
                        f"{shown(folder)} holds more than {MAX_FILES} files", file=shown(folder)
                    )
                try:
                    status = entry.stat()
                except OSError:
                    continue  # a link to nothing, as in a cache that was cleaned; it counts as absent
                if stat.S_ISREG(status.st_mode):
                    sizes[entry.name] = status.st_size
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise SourceError(f"{shown(folder)} cannot be listed: {reason}", file=shown(folder)) from None
    return Listing(
        id=model_id or shown(folder.name or folder.resolve().name or str(folder)),
        where=shown(folder),
        sizes=sizes,
        fetch=folder.joinpath,
        read_headers=lambda names: _read_headers(folder, names),
        size_source="sizes of the files in the folder",
        is_local=True,
        notes=notes,
    )


def _read_headers(folder: Path, names: list[str]) -> HeaderTable:
    from vramledger.models.sources.safetensors import read_table

    return read_table([folder / name for name in names])
