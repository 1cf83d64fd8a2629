"""The models of models.json, found by name.

The file is written by `python -m tools.builtin_models` from configs that were collected with their sources. It holds
no tensor table: what a model stores follows from its config.json, and the parameters that this gives are compared with
the published counts by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from vramledger.errors import SourceError, either
from vramledger.evidence import reported
from vramledger.models.sources.load import BUILTIN, CONFIG, Source

PREFIX = BUILTIN

_FILE = Path(__file__).with_name("models.json")
_LONGEST_NAME = 200


class BuiltinModel(Struct, frozen=True, kw_only=True):
    """One published model.

    `name` is what follows `builtin:`, `id` the hub's own. `source` says where the config was found, or, where
    `reconstructed`, from what it was written because no original was found. `published_parameters` counts the elements of
    the published files and `published_note` says how that relates to the parameters of the model in memory ("exact",
    "published count includes MTP ..."). `total_size_bytes` is the `metadata.total_size` of the published index. What is
    not known is None or empty.
    """

    name: str
    id: str
    source: str
    reconstructed: bool
    published_parameters: int | None
    published_note: str
    total_size_bytes: int | None
    config: dict[str, Any]
    hf_quant_config: dict[str, Any] | None = None


class _File(Struct, frozen=True, kw_only=True):
    models: tuple[BuiltinModel, ...]


def names() -> tuple[str, ...]:
    """Names that `read` takes, in the file's order: by family, small ones first."""
    return tuple(_by_name())


def models() -> tuple[BuiltinModel, ...]:
    """All of them, in the order of `names`."""
    return tuple(_by_name().values())


def find(name: str) -> BuiltinModel:
    """The model of a name or hub id, with or without `builtin:`; case does not matter.

    Raises SourceError with the closest names (fact `closest`) for one that is not here.
    """
    wanted = name.strip().removeprefix(PREFIX)
    found = _by_key().get(wanted.casefold())
    if found is not None:
        return found
    from vramledger.models.sources.bounded_file import quote

    closest = _closest(wanted)
    hint = f"; did you mean {either(closest)}?" if closest else ";"
    raise SourceError(
        f"no built-in model is called {quote(wanted, 120)}{hint} `vramledger model --list` lists all {len(_by_name())}",
        text=wanted[:_LONGEST_NAME],
        closest=closest,
    )


def read(name: str) -> Source:
    """What `load_source` gives for `builtin:NAME`: a config and no headers. Raises what `find` raises."""
    model = find(name)
    notes: tuple[str, ...] = ()
    if model.reconstructed:
        notes = (f"config.json is {model.source}; no original was found",)
    return Source(
        id=model.id,
        where=f"{PREFIX}{model.name}/{CONFIG}",
        config=model.config,
        quant_configs=_quant_configs(model),
        side_configs={},
        table=None,
        index=None,
        gguf=None,
        disk_bytes=model.total_size_bytes,
        disk_evidence=(
            reported("metadata.total_size of the published index", model.id)
            if model.total_size_bytes is not None
            else None
        ),
        files=(CONFIG,),
        notes=notes,
    )


def _quant_configs(model: BuiltinModel) -> Mapping[str, Mapping[str, Any]]:
    return {"hf_quant_config.json": model.hf_quant_config} if model.hf_quant_config is not None else {}


def _closest(wanted: str) -> tuple[str, ...]:
    """Names that `wanted` may have meant: it begins or is a part of them, or is spelled much like them."""
    from difflib import get_close_matches

    keys = {name.casefold(): name for name in _by_name()}
    key = wanted[:_LONGEST_NAME].rpartition("/")[2].casefold()
    near = [known for known in keys if key and key in known]
    near += get_close_matches(key, keys, n=4, cutoff=0.6)
    return tuple(dict.fromkeys(keys[known] for known in near))[:4]


@cache
def _by_name() -> dict[str, BuiltinModel]:
    return {model.name: model for model in msgspec.json.decode(_FILE.read_bytes(), type=_File).models}


@cache
def _by_key() -> dict[str, BuiltinModel]:
    """By name and by hub id, without case."""
    return {text.casefold(): model for model in _by_name().values() for text in (model.name, model.id)}
