"""An adapter from wherever a person points: a folder, one of its files, a GGUF adapter, or a hub id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from vramledger.errors import ConfigError, HeaderError, InputError, SourceError
from vramledger.evidence import Evidence, assumed, reported
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.config import CONFIG_NAME, AdapterConfig, adapter_config
from vramledger.models.adapters.pairing import pair_up
from vramledger.models.sources.bounded_file import path_of, quote, shown
from vramledger.models.sources.json_file import read_json_object
from vramledger.models.sources.listing import Listing, folder_listing
from vramledger.models.sources.load import is_hub_id

if TYPE_CHECKING:
    from vramledger.models.sources.gguf import GgufInfo
    from vramledger.models.sources.header_table import HeaderRow, HeaderTable

SAFETENSORS = "adapter_model.safetensors"
PICKLES = ("adapter_model.bin", "adapter_model.pt")


def load_adapter(text: str, *, endpoint: str | None = None, cache_dir: Path | None = None) -> Adapter:
    """The adapter at a folder with an adapter_config.json, at that file or its weights, at a *.gguf adapter, or
    at a hub id (`org/name[@revision]`).

    Headers of safetensors and GGUF files are read, never their data; a pickled `adapter_model.bin` is not opened,
    its shapes come from the config. Raises InputError, SourceError, ConfigError or HeaderError.
    """
    if not text.strip():
        raise InputError(
            "ADAPTER is empty; give a folder, a file or a hub id", argument="adapter", value=text
        )
    try:
        path = path_of(text)
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError):
        is_folder = is_there = False
    if is_folder:
        listing = folder_listing(path)
        ggufs = [name for name in listing.sizes if name.endswith(".gguf")]
        if CONFIG_NAME not in listing.sizes and len(ggufs) == 1:
            return _from_gguf(path / ggufs[0])
        return _from_listing(listing)
    if is_there:
        return _from_file(path)
    if is_hub_id(text):
        from vramledger.models.sources.hub import hub_listing

        return _from_listing(hub_listing(text, endpoint=endpoint, cache_dir=cache_dir, main_file=CONFIG_NAME))
    raise SourceError(
        f"{quote(text, 120)} is neither an existing file or folder nor a hub id such as org/name", text=text
    )


def _from_file(path: Path) -> Adapter:
    if path.name.endswith(".gguf"):
        return _from_gguf(path)
    if path.name.endswith((".safetensors", ".bin", ".pt", ".json")):
        only = None if path.name.endswith(".json") else path.name
        return _from_listing(folder_listing(path.parent), only=only, config=path if only is None else None)
    raise SourceError(
        f"{shown(path)} is not an {CONFIG_NAME}, a .safetensors, a .bin or a .gguf file", file=shown(path)
    )


def _from_listing(listing: Listing, *, only: str | None = None, config: Path | None = None) -> Adapter:
    if CONFIG_NAME not in listing.sizes and config is None:
        raise SourceError(
            f"{listing.where} has no {CONFIG_NAME}, which states an adapter's rank", where=listing.where
        )
    where = shown(config) if config is not None else f"{listing.where}/{CONFIG_NAME}"
    read = adapter_config(read_json_object(config or listing.fetch(CONFIG_NAME)), where)
    weights = only or next((name for name in (SAFETENSORS, *PICKLES) if name in listing.sizes), None)
    if weights is not None and weights.endswith(".safetensors"):
        table = listing.read_headers([weights])
        return _read(listing.id, listing.where, read, table.rows, table)
    size_bytes, evidence, notes = _unread(listing, weights)
    return Adapter(
        id=listing.id,
        where=listing.where,
        config=read,
        pairs=(),
        extras=(),
        disk_bytes=size_bytes,
        disk_evidence=evidence,
        is_read=False,
        notes=(*listing.notes, *notes),
    )


def _unread(listing: Listing, weights: str | None) -> tuple[int, Evidence, tuple[str, ...]]:
    """Size and origin where no header can be read."""
    if weights is None:
        return 0, assumed("no weight file beside the config"), (f"{listing.where} has no {SAFETENSORS}",)
    note = (
        f"{weights} is a pickle, which is not opened; shapes are those {CONFIG_NAME} asks of the base model"
    )
    size = listing.sizes.get(weights)
    if size is None:
        return 0, assumed(f"the size of {weights} is not known"), (note,)
    return size, reported(listing.size_source, weights), (note,)


def _read(
    name: str, where: str, config: AdapterConfig, rows: tuple[HeaderRow, ...], table: HeaderTable
) -> Adapter:
    pairs, extras, unpaired = pair_up(rows, where)
    if not pairs and not extras:
        raise HeaderError(f"{where} holds no tensors", file=where)
    return Adapter(
        id=name,
        where=where,
        config=config,
        pairs=pairs,
        extras=extras,
        disk_bytes=table.total_bytes,
        disk_evidence=reported("headers of the adapter", f"sum of {table.tensor_count} tensors"),
        unpaired=unpaired,
        notes=table.notes,
    )


def _from_gguf(path: Path) -> Adapter:
    """llama.cpp's adapters (llama-adapter.cpp): `general.type` adapter, `adapter.type` lora, matrices under the
    names of the weights they change. An embedding's A is stored the other way round."""
    from vramledger.models.sources.gguf import read_gguf

    info = read_gguf(path)
    where = shown(path)
    for key, wanted in (("general.type", "adapter"), ("adapter.type", "lora")):
        value = info.metadata.get(key)
        if value != wanted:
            raise ConfigError(
                f"{where}: {key} is {quote(value)}, not {wanted!r}; this is no LoRA adapter",
                file=where,
                key=key,
                value=value,
            )
    table = info.table()
    rows = tuple(_turned(row) for row in table.rows)
    ranks = [pair.rank for pair in pair_up(rows, where)[0]]
    if not ranks:
        raise HeaderError(f"{where} holds no lora_a with its lora_b", file=where)
    config = AdapterConfig(rank=max(ranks), alpha=_gguf_alpha(info, where))
    found = _read(shown(path.stem), where, config, rows, table)
    smallest = min(pair.rank for pair in found.pairs)
    notes = found.notes if smallest == config.rank else (*found.notes, f"ranks {smallest} to {config.rank}")
    return replace(found, is_gguf=True, notes=notes)


def _turned(row: HeaderRow) -> HeaderRow:
    if not row.template.startswith("token_embd.weight.lora_"):
        return row
    if row.template.endswith("lora_a"):
        return replace(row, template="token_embd.lora_embedding_A", shape=row.shape[::-1])
    return replace(row, template="token_embd.lora_embedding_B")


def _gguf_alpha(info: GgufInfo, where: str) -> float:
    metadata: Mapping[str, Any] = info.metadata
    alpha = metadata.get("adapter.lora.alpha", 0.0)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or alpha != alpha:
        raise ConfigError(
            f"{where}: adapter.lora.alpha is {quote(alpha)}, not a number", file=where, value=quote(alpha)
        )
    return float(alpha)
