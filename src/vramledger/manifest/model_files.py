"""Reading what identifies a model: a hub's commit, or the hashes of a folder's or file's parts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from vramledger.errors import InputError, SourceError, VramledgerError
from vramledger.manifest.identity import (
    Coverage,
    FileIdentity,
    ModelIdentity,
    files_identity,
    hub_identity,
    is_weights,
)
from vramledger.models.sources.bounded_file import ReadAt, open_for_headers, path_of, shown
from vramledger.models.sources.listing import Listing, folder_listing
from vramledger.models.sources.load import BUILTIN, CONFIG, is_hub_id

CHUNK_BYTES = 2**22
MAX_FILES = 4096
WHOLE_LIMIT_BYTES = 256 * 2**20
"""Files that hold no weights are hashed whole; a larger one is not such a file."""

_DECIDING = re.compile(r".{1,200}\.(json|safetensors|gguf|bin|pt|pth|model|tiktoken|jinja|txt|py)")
_COMMIT = re.compile(r"[0-9a-f]{40}")


Read = Callable[[int], object]


def _unwatched(size_bytes: int) -> None:
    """Nobody watches."""


class Identified(Struct, frozen=True, kw_only=True):
    """A model's identity, and the text that names just this revision to whoever reads the model next."""

    identity: ModelIdentity
    model: str


def identify(
    text: str,
    *,
    hash_weights: bool = False,
    endpoint: str | None = None,
    cache_dir: Path | None = None,
    read: Read = _unwatched,
) -> Identified:
    """The model at a folder, a file or a hub id, as `load_source` finds it.

    Of weight files the header is hashed and the size taken, with `hash_weights` the whole content. On the hub the commit
    says all, and small files are not read for it. `read` is told of every piece's bytes. Raises SourceError for what cannot be read,
    InputError for a built-in model, which is no revision of anything.
    """
    if text.strip().startswith(BUILTIN):
        raise InputError(
            f"{shown(text)} has no revision and no weights: what is built in is a config.json to plan with; give the folder, "
            "file or hub id of the checkpoint that is served",
            argument="model",
            value=shown(text),
        )
    path = path_of(text)
    if path.is_dir():
        return _local(text, folder_listing(path), path, None, hash_weights, read)
    if path.exists():
        if path.suffix == ".gguf":
            from vramledger.models.sources.gguf import gguf_parts

            parts = tuple(gguf_parts(path.name))
            return _local(text, folder_listing(path.parent), path.parent, parts, hash_weights, read)
        only = None
        if path.suffix == ".json" and path.name != CONFIG and not path.name.endswith(".index.json"):
            only = (path.name,)
        return _local(text, folder_listing(path.parent), path.parent, only, hash_weights, read)
    if is_hub_id(text):
        return _of_hub(text, endpoint, cache_dir)
    raise SourceError(
        f"{shown(text)} is neither an existing file or folder nor a hub id such as org/name", text=shown(text)
    )


def _of_hub(text: str, endpoint: str | None, cache_dir: Path | None) -> Identified:
    from vramledger.models.sources.hub import hub_listing

    listing = hub_listing(text, endpoint=endpoint, cache_dir=cache_dir)
    # Snapshots of the hub's cache lie in a folder named after their commit.
    commit = Path(listing.fetch(CONFIG)).parent.name
    if not _COMMIT.fullmatch(commit):
        raise SourceError(f"{shown(text)}: the commit of what was read is not known", text=shown(text))
    return Identified(identity=hub_identity(listing.id, commit, ()), model=f"{listing.id}@{commit}")


def _local(
    text: str, listing: Listing, folder: Path, only: tuple[str, ...] | None, hash_weights: bool, read: Read
) -> Identified:
    names = sorted(
        name for name in listing.sizes if (name in only if only is not None else _DECIDING.fullmatch(name))
    )
    if not names:
        raise SourceError(f"{listing.where} holds no file of a model", file=listing.where)
    if len(names) > MAX_FILES:
        raise SourceError(
            f"{listing.where} holds {len(names)} files that might be the model's; give the folder of one",
            file=listing.where,
        )
    headers = {} if hash_weights else _gguf_headers(folder, names)
    files = tuple(_file(folder / name, hash_weights, headers, read) for name in names)
    model_id = listing.id if only is None else shown(Path(only[0]).stem)
    return Identified(identity=files_identity(model_id, files), model=text)


def _file(path: Path, hash_weights: bool, gguf_headers: Mapping[str, int], read: Read) -> FileIdentity:
    covers: Coverage = "content"
    with open_for_headers(path) as (read_at, size_bytes):
        length: int | None = size_bytes
        if not hash_weights and is_weights(path.name):
            covers, length = "header", _header_bytes(path, read_at, size_bytes, gguf_headers)
        elif not hash_weights and size_bytes > WHOLE_LIMIT_BYTES:
            length = None
        return FileIdentity(
            name=shown(path.name),
            size_bytes=size_bytes,
            covers="size" if length is None else covers,
            sha256=None if length is None else _hash(read_at, length, read),
        )


def _hash(read_at: ReadAt, size_bytes: int, read: Read) -> str:
    found = hashlib.sha256()
    at = 0
    while at < size_bytes:
        part = read_at(at, min(CHUNK_BYTES, size_bytes - at))
        if not part:
            break
        found.update(part)
        at += len(part)
        read(len(part))
    return found.hexdigest()


def _header_bytes(
    path: Path, read_at: ReadAt, size_bytes: int, gguf_headers: Mapping[str, int]
) -> int | None:
    """Bytes before the tensors' data; None where the format states none (pickles) or what it states cannot be."""
    if path.suffix == ".safetensors":
        # safetensors: eight bytes of length, little-endian, then so many of JSON.
        stated = read_at(0, 8)
        length = 8 + int.from_bytes(stated, "little")
        return length if len(stated) == 8 and length <= min(size_bytes, WHOLE_LIMIT_BYTES) else None
    header = gguf_headers.get(path.name)
    return None if header is None else min(header, size_bytes)


def _gguf_headers(folder: Path, names: list[str]) -> dict[str, int]:
    """Bytes before the data of each GGUF file, each model read once."""
    from vramledger.models.sources.gguf import gguf_parts, read_gguf

    found: dict[str, int] = {}
    for first in sorted({gguf_parts(name)[0] for name in names if name.endswith(".gguf")}):
        # A header that cannot be read leaves the file's size; whoever loads that model says what is wrong with it.
        with suppress(VramledgerError):
            found |= {file.name: file.header_bytes for file in read_gguf(folder / first).files}
    return found
