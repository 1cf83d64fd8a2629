"""A manifest's bytes, and the file they are written to."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vramledger.errors import InputError
from vramledger.manifest.build import plain
from vramledger.manifest.canonical import canonical
from vramledger.manifest.document import ManifestDocument
from vramledger.models.sources.bounded_file import shown
from vramledger.whole_file import unwritten, whole_file


def manifest_bytes(document: ManifestDocument) -> bytes:
    """The canonical form, indented: equal manifests have equal bytes, and a line is what a person changes."""
    return msgspec.json.format(canonical(plain(document)), indent=2) + b"\n"


def write_manifest(document: ManifestDocument, path: Path, *, force: bool) -> None:
    """The manifest as a file that appears whole or not at all; without `force` one that is there stays.

    Raises InputError where there is one, OutputError where it cannot be written.
    """
    try:
        with whole_file(path, replace=force) as file:
            file.write(manifest_bytes(document))
    except FileExistsError:
        raise InputError(
            f"{shown(path)} exists already; give another -o, or --force to replace it", file=shown(path)
        ) from None
    except (OSError, ValueError) as problem:
        raise unwritten(path, problem) from None
