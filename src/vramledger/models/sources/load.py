"""A model from wherever a person points: a folder, a file, a hub id, or a built-in model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from vramledger.errors import InputError, SourceError, VramledgerError
from vramledger.evidence import Evidence, reported
from vramledger.models.config import Config
from vramledger.models.sources.bounded_file import path_of, quote, shown
from vramledger.models.sources.json_file import read_json_object
from vramledger.models.sources.listing import Listing, folder_listing

if TYPE_CHECKING:
    from vramledger.models.sources.gguf import GgufInfo
    from vramledger.models.sources.header_table import HeaderTable
    from vramledger.models.sources.index_file import IndexInfo

# Readers of weight files are imported by the functions that meet such files: most questions are about a
# config.json alone, and the readers take a third of the time that the answer takes.

BUILTIN = "builtin:"
CONFIG = "config.json"
QUANT_CONFIGS = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
SIDE_CONFIGS = ("generation_config.json", "preprocessor_config.json", "processor_config.json")

_HUB_ID = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:@[A-Za-z0-9][A-Za-z0-9._/-]{0,254})?"
)
_PART_NAME = re.compile(r"(.+)-[0-9]{5}-of-([0-9]{5})\.safetensors")
_MOST_PARTS = 10_000
_FILE_SUFFIXES = (".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth", ".txt", ".yaml", ".yml")


class Source(Struct, frozen=True, kw_only=True):
    """Everything read about one model, nothing derived.

    `config` is config.json as parsed (or made from GGUF metadata); `quant_configs` and `side_configs` hold
    the files beside it by name. `table` has every tensor of the checkpoint or is None; `index` is the
    checkpoint's index file, with its names where there is no table. `disk_bytes` is the exact size of the weight files, None where it is not known.
    """

    id: str
    where: str
    config: Mapping[str, Any]
    quant_configs: Mapping[str, Mapping[str, Any]]
    side_configs: Mapping[str, Mapping[str, Any]]
    table: HeaderTable | None
    index: IndexInfo | None
    gguf: GgufInfo | None
    disk_bytes: int | None
    disk_evidence: Evidence | None
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def config_view(self) -> Config:
        """`config` with the file's name for messages, as the architecture descriptions read it."""
        return Config(self.config, self.where)


def load_source(
    text: str, *, headers: bool = True, endpoint: str | None = None, cache_dir: Path | None = None
) -> Source:
    """The model at a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id, or of `builtin:NAME`.

    An existing path wins over a hub id of the same name, `builtin:` over a path. Without `headers` no safetensors header is read.
    `endpoint` and `cache_dir` override the hub library's own. Raises SourceError where nothing can be read,
    InputError for an empty text, ConfigError or HeaderError for a file that is wrong, UnknownArchitecture for a GGUF file of an
    architecture that has no config here.
    """
    if not text.strip():
        raise InputError(
            "MODEL is empty; give a folder, a file or a hub id such as org/name", argument="model", value=text
        )
    if text.strip().startswith(BUILTIN):
        from vramledger.models.builtin.catalogue import read

        return read(text)
    try:
        path = path_of(text)
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError):
        is_folder = is_there = False
    if is_folder:
        return _from_listing(folder_listing(path), headers=headers)
    if is_there:
        return _from_file(path, headers=headers)
    if is_hub_id(text):
        from vramledger.models.sources.hub import hub_listing

        return _from_listing(hub_listing(text, endpoint=endpoint, cache_dir=cache_dir), headers=headers)
    raise SourceError(
        f"{quote(text, 120)} is neither an existing file or folder nor a hub id such as org/name or org/name@revision, "
        "nor builtin:NAME",
        text=text,
    )


def is_hub_id(text: str) -> bool:
    """Whether `text` reads as `org/name` (or an old `name`), with or without `@revision`."""
    name = text.partition("@")[0]
    return (
        _HUB_ID.fullmatch(text) is not None
        and not name.lower().endswith(_FILE_SUFFIXES)
        and ".." not in text
        and "--" not in name
    )


def _from_file(path: Path, *, headers: bool) -> Source:
    name = path.name
    if name.endswith(".gguf"):
        return _from_gguf(path)
    if name == CONFIG or name.endswith(".index.json"):
        return _from_listing(folder_listing(path.parent), headers=headers)
    if name.endswith(".safetensors"):
        return _from_listing(folder_listing(path.parent), headers=headers, only=name)
    if name.endswith(".json"):
        return Source(
            id=shown(path.stem),
            where=shown(path),
            config=read_json_object(path),
            quant_configs={},
            side_configs={},
            table=None,
            index=None,
            gguf=None,
            disk_bytes=None,
            disk_evidence=None,
            files=(name,),
        )
    raise SourceError(
        f"{shown(path)} is not a config.json, an index, a .safetensors or a .gguf file", file=shown(path)
    )


def _from_listing(listing: Listing, *, headers: bool, only: str | None = None) -> Source:
    """`only` is a safetensors file a person pointed at; a shard of an index stands for the whole."""
    sizes = listing.sizes
    if CONFIG not in sizes:
        return _without_config(listing, only)
    config = read_json_object(listing.fetch(CONFIG))
    notes = list(listing.notes)
    index = _read_index(listing, only, names=not headers)
    if index is not None:
        notes.extend(index.notes)
    weights = _weight_files(listing, index, only)
    table = _read_table(listing, weights, notes) if headers else None
    if table is not None and index is not None:
        notes.extend(_differences(index, table))
    elif headers and index is not None:
        index = _read_index(listing, only, names=True)
    disk_bytes = _disk_bytes(sizes, weights)
    evidence = None
    if disk_bytes is not None:
        evidence = reported(listing.size_source, f"sum of {len(weights)} weight file(s)")
    return Source(
        id=listing.id,
        where=f"{listing.where}/{CONFIG}",
        config=config,
        quant_configs={
            name: read_json_object(listing.fetch(name)) for name in QUANT_CONFIGS if name in sizes
        },
        side_configs=_side_configs(listing, notes),
        table=table,
        index=index,
        gguf=None,
        disk_bytes=disk_bytes,
        disk_evidence=evidence,
        files=tuple(sorted(sizes)),
        notes=tuple(notes),
    )


def _read_table(listing: Listing, weights: list[str], notes: list[str]) -> HeaderTable | None:
    """The headers of all weight files; a part of them would be taken for the whole, so then none."""
    absent = [name for name in weights if name not in listing.sizes]
    if absent and len(absent) < len(weights):
        notes.append(
            f"{len(absent)} of {len(weights)} weight files are not there ({absent[0]} ...); none was read"
        )
    if absent or not weights or not weights[0].endswith(".safetensors"):
        return None
    table = listing.read_headers(weights)
    notes.extend(table.notes)
    return table


def _differences(index: IndexInfo, table: HeaderTable) -> list[str]:
    """Where an index and the headers of its files disagree; the headers are what is loaded."""
    out = []
    if index.tensor_count != table.tensor_count:
        out.append(
            f"{index.file} names {index.tensor_count} tensors and the headers hold {table.tensor_count}"
        )
    if index.total_size_bytes not in (None, table.total_bytes):
        out.append(
            f"{index.file} states total_size {index.total_size_bytes}; the headers sum up to {table.total_bytes} bytes"
        )
    return out


def _side_configs(listing: Listing, notes: list[str]) -> dict[str, Mapping[str, Any]]:
    """Files that only refine a plan: one that cannot be read is noted and left out."""
    out: dict[str, Mapping[str, Any]] = {}
    for name in SIDE_CONFIGS:
        if name in listing.sizes:
            try:
                out[name] = read_json_object(listing.fetch(name))
            except VramledgerError as problem:
                notes.append(f"not used: {problem.message}")
    return out


def _read_index(listing: Listing, only: str | None, *, names: bool) -> IndexInfo | None:
    """The index beside the weights: that of safetensors first, as engines do.

    Its names are counted and, without `names`, no more: where there are headers they say all of it.
    """
    if not any(name.endswith(".index.json") for name in listing.sizes):
        return None
    from vramledger.models.sources.index_file import PYTORCH_INDEX, SAFETENSORS_INDEX, read_index

    for name in (SAFETENSORS_INDEX, PYTORCH_INDEX):
        if name == PYTORCH_INDEX and _safetensors_files(listing):
            return None
        if name in listing.sizes:
            index = read_index(listing.fetch(name), names=names)
            if only is None or only in index.shards:
                return index
    return None


def _weight_files(listing: Listing, index: IndexInfo | None, only: str | None) -> list[str]:
    if index is not None:
        return list(index.shards)
    if only is not None:
        return [only]
    return _whole(_safetensors_files(listing)) or sorted(
        name for name in listing.sizes if name.startswith("pytorch_model") and name.endswith(".bin")
    )


def _whole(names: list[str]) -> list[str]:
    """The files of a model with those that their own numbers say are missing: `model-00002-of-00002.safetensors` beside its first."""
    found = dict.fromkeys(names)
    for name in names:
        match = _PART_NAME.fullmatch(name)
        if match is not None and int(match[2]) <= _MOST_PARTS:
            found |= dict.fromkeys(
                f"{match[1]}-{number:05d}-of-{match[2]}.safetensors" for number in range(1, int(match[2]) + 1)
            )
    return sorted(found)


def _safetensors_files(listing: Listing) -> list[str]:
    if not any(name.endswith(".safetensors") for name in listing.sizes):
        return []
    from vramledger.models.sources.safetensors import checkpoint_files

    return checkpoint_files(list(listing.sizes))


def _disk_bytes(sizes: Mapping[str, int | None], weights: list[str]) -> int | None:
    known = [size for name in weights if (size := sizes.get(name)) is not None]
    return sum(known) if weights and len(known) == len(weights) else None


def _without_config(listing: Listing, only: str | None) -> Source:
    """A folder of one GGUF model needs no config.json; anything else does."""
    if only is None:
        # A projector for images lies beside its model under this name.
        from vramledger.models.sources.gguf import gguf_parts

        ggufs = [name for name in listing.sizes if name.endswith(".gguf") and not name.startswith("mmproj")]
        models = sorted({gguf_parts(name)[0] for name in ggufs})
        if len(models) == 1 and listing.is_local:
            return _from_gguf(listing.fetch(models[0]))
        if models:
            raise SourceError(
                f"{listing.where} has no config.json and GGUF files; give the path of one of them: {', '.join(models[:8])}",
                where=listing.where,
            )
    beside = f" beside {only}" if only else ""
    raise SourceError(f"{listing.where} has no {CONFIG}{beside}", where=listing.where)


def _from_gguf(path: Path) -> Source:
    from vramledger.models.sources.gguf import read_gguf
    from vramledger.models.sources.gguf_config import config_from_gguf

    info = read_gguf(path)
    config, notes = config_from_gguf(info, shown(path))
    return Source(
        id=shown(path.stem),
        where=shown(path),
        config=config,
        quant_configs={},
        side_configs={},
        table=info.table(),
        index=None,
        gguf=info,
        disk_bytes=info.file_bytes,
        disk_evidence=reported("size of the GGUF file(s)", f"sum of {len(info.files)} file(s)"),
        files=tuple(file.name for file in info.files),
        notes=info.notes + notes,
    )
