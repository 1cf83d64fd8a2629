"""Files that the page was given: in a folder of their own, under names that nobody chose, bounded, gone when the server ends."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec import Struct

from vramledger.errors import InputError

LARGEST_FILE_BYTES = 256 * 1024**2
LARGEST_TOTAL_BYTES = 2 * 1024**3
LARGEST_STATED_BYTES = 4 * 1024**4
MOST_UPLOADS = 64
MOST_FILES = 300
_LONGEST_NAME = 120
# Readers of these look at the header alone; others would read zeros for hours.
_WITH_HEADER = (".safetensors", ".gguf")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Upload(Struct, frozen=True, kw_only=True):
    """One thing that was dropped: a file, or files that belong together as a checkpoint's do."""

    id: str
    folder: Path
    names: tuple[str, ...]
    size_bytes: int

    @property
    def path(self) -> Path:
        """What a command is given: the file, or the folder of several."""
        return self.folder / self.names[0] if len(self.names) == 1 else self.folder

    @property
    def shown(self) -> str:
        """How a person would name it on a command line of theirs."""
        return f"./{self.names[0]}" if len(self.names) == 1 else "."


class Uploads:
    """What is held; the oldest goes where there would be too many."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, Upload] = {}
        self._coming_bytes = 0

    def find(self, key: str) -> Upload:
        """What was dropped under this id. Raises InputError where it is not held (any more)."""
        found = self._held.get(key)
        if found is None:
            raise InputError("this file is not held any more: drop it again", upload=key[:40])
        return found

    async def add(
        self,
        name: str,
        chunks: AsyncIterator[bytes],
        *,
        stated_bytes: int | None = None,
        into: str | None = None,
    ) -> Upload:
        """Keep a file. `stated_bytes` is the size of the file of which only the beginning was sent (a header): what is not there
        reads as zeros and takes no room. `into` is an upload that the file belongs to.

        Raises InputError for more than is taken.
        """
        before = self.find(into) if into is not None else None
        if before is not None and len(before.names) >= MOST_FILES:
            raise InputError(f"more than {MOST_FILES} files in one model", upload=before.id)
        if stated_bytes is not None and not 0 <= stated_bytes <= LARGEST_STATED_BYTES:
            raise InputError(f"a size of {stated_bytes:,} bytes is none that a file has", size=stated_bytes)
        if stated_bytes is not None and not name.endswith(_WITH_HEADER):
            raise InputError(
                f"of a file that ends in none of {', '.join(_WITH_HEADER)} all is sent", size=stated_bytes
            )
        kept_as = safe_name(name)
        key = before.id if before is not None else secrets.token_urlsafe(12)
        # A model without a name of its own is called as its folder is.
        folder = self._root / key / "model"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = folder / f".{secrets.token_urlsafe(6)}.part"
        size = 0
        try:
            with part.open("xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    self._coming_bytes += len(chunk)
                    self._refuse_too_much(size, before)
                    file.write(chunk)
                if stated_bytes is not None and stated_bytes > size:
                    file.truncate(stated_bytes)
            if before is not None:
                before = self.find(key)  # others may have come meanwhile, or all of them gone
            part.replace(folder / kept_as)
        except BaseException as problem:
            part.unlink(missing_ok=True)
            if before is None:
                shutil.rmtree(folder.parent, ignore_errors=True)
            if isinstance(problem, OSError):
                raise InputError(f"the file cannot be kept: {problem.strerror or problem}") from None
            raise
        finally:
            self._coming_bytes -= size
        names = dict.fromkeys((*(before.names if before is not None else ()), kept_as))
        total = size + (before.size_bytes if before is not None else 0)
        added = Upload(id=key, folder=folder, names=tuple(names), size_bytes=total)
        self._held.pop(key, None)
        self._held[key] = added
        self._forget_the_oldest()
        return added

    def _refuse_too_much(self, size: int, before: Upload | None) -> None:
        if size > LARGEST_FILE_BYTES:
            raise InputError(
                f"more than {LARGEST_FILE_BYTES // 1024**2} MiB: give the file to the command instead",
                size=size,
            )
        if before is not None and before.size_bytes + size > LARGEST_TOTAL_BYTES:
            raise InputError(
                f"more than {LARGEST_TOTAL_BYTES // 1024**2} MiB in one model: give its folder to the command instead",
                size=before.size_bytes + size,
            )
        if self._coming_bytes > LARGEST_TOTAL_BYTES:
            raise InputError("more files come at once than there is room for: send them one after the other")

    def _forget_the_oldest(self) -> None:
        while len(self._held) > MOST_UPLOADS or (
            len(self._held) > 1 and sum(each.size_bytes for each in self._held.values()) > LARGEST_TOTAL_BYTES
        ):
            oldest = self._held.pop(next(iter(self._held)))
            shutil.rmtree(oldest.folder.parent, ignore_errors=True)


def safe_name(name: str) -> str:
    """The last part of a name with nothing in it that a folder or a shell obeys. Raises InputError where nothing is left."""
    last = _UNSAFE.sub("_", re.split(r"[/\\]", name)[-1]).lstrip("._-")
    if not last:
        raise InputError("the file has no name", name=name[:80])
    if len(last) <= _LONGEST_NAME:
        return last
    stem, dot, suffix = last.rpartition(".")
    return (
        f"{stem[: _LONGEST_NAME - len(suffix) - 1]}{dot}{suffix}"
        if dot and len(suffix) < 20
        else last[:_LONGEST_NAME]
    )
