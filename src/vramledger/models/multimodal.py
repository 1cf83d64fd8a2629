"""A text model with towers beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from vramledger.models.config import Config
from vramledger.models.model import Model, Tower
from vramledger.models.tensors import Tensor


def compose(
    text: Model,
    config: Config,
    model_id: str,
    *,
    prefixes: Mapping[str, str],
    extra: Iterable[Tensor],
    towers: tuple[Tower, ...],
) -> Model:
    """`text`, its tensors renamed by the first matching of `prefixes`, with `extra` tensors (towers,
    projectors) added. The outer config's class, type and (where stated) element type win."""
    renamed = tuple(replace(tensor, name=_rename(tensor.name, prefixes)) for tensor in text.tensors)
    return replace(
        text,
        id=model_id,
        architecture=(config.texts("architectures") or (text.architecture,))[0],
        model_type=config.text("model_type", default=text.model_type),
        dtype=config.dtype(default=text.dtype),
        tensors=renamed + tuple(extra),
        towers=towers,
        notes=tuple(dict.fromkeys((*text.notes, *config.notes))),
    )


def _rename(name: str, prefixes: Mapping[str, str]) -> str:
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
