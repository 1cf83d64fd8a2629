"""Whole files and standard input, bounded, with the digest that names them in a measurement."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from msgspec import Struct

from vramledger.errors import InputError, SourceError
from vramledger.measurement import MeasurementSource
from vramledger.models.sources.bounded_file import path_of, read_whole, regular_file_bytes, shown

STDIN = "-"


class Input(Struct, frozen=True, kw_only=True):
    """What was read, and the name under which it is told of."""

    name: str
    body: bytes

    def source(
        self, kind: str, *, from_s: float | None = None, until_s: float | None = None
    ) -> MeasurementSource:
        """How a measurement names it."""
        return MeasurementSource(
            name=self.name,
            kind=kind,
            sha256=hashlib.sha256(self.body).hexdigest(),
            size_bytes=len(self.body),
            from_s=from_s,
            until_s=until_s,
        )


def read_input(text: str, limit_bytes: int) -> Input:
    """A whole file, or standard input for "-". Raises SourceError for what cannot be read, InputError for what is larger."""
    if text != STDIN:
        path = path_of(text)
        return Input(name=shown(path), body=read_whole(path, limit_bytes, InputError))
    if sys.stdin is None:
        raise SourceError("there is no standard input")
    try:
        body = sys.stdin.buffer.read(limit_bytes + 1)
    except OSError as problem:
        raise SourceError(f"standard input cannot be read: {problem.strerror}") from None
    if len(body) > limit_bytes:
        raise InputError(f"standard input has more than the {limit_bytes:,} bytes that this may have")
    return Input(name="standard input", body=body)


def file_digest(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a regular file of any size, read in pieces. Raises SourceError where it cannot be read."""
    regular_file_bytes(path)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return digest.hexdigest(), file.tell()
    except OSError as problem:
        raise SourceError(f"{shown(path)} cannot be read: {problem.strerror}", file=shown(path)) from None
