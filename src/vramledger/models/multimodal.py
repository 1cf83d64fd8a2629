"""A text model with towers beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from vramledger.models.config import Config
from vramledger.models.model import Model, Tower
from vramledger.models.tensors import Tensor
from vramledger.models.text_defaults import TEXT_DEFAULTS

BESIDE = {"model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
"""A text model kept whole under `language_model.`, the towers beside it."""

WITHIN = {"model.": "model.language_model."}
"""A text model inside `model.`, with the towers, and the head outside."""


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


def text_config(
    config: Config,
    key: str = "text_config",
    *,
    model_type: str = "",
    as_type: str = "",
    tied: bool = False,
) -> Config:
    """The nested config of the language model, as its own class would read it.

    `model_type` is the type where the nested object names none, `as_type` the type it is described as
    whatever it names. Nested configs are saved as their difference from the class, so missing dimensions are
    the class's and noted. Tying is what the outer object says, else the nested one, else `tied`.
    """
    nested = config.sub(key)
    stated = nested.text("model_type", default=model_type or as_type)
    outer = config if "tie_word_embeddings" in config else nested
    named = nested.replacing(
        model_type=as_type or stated, tie_word_embeddings=outer.flag("tie_word_embeddings", default=tied)
    )
    return named.with_defaults(f"the {stated} class", **TEXT_DEFAULTS.get(stated, {}))


def _rename(name: str, prefixes: Mapping[str, str]) -> str:
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
