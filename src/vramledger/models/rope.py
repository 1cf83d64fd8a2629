"""Rotary embeddings as configs state them (`rope_scaling` of Transformers 4, `rope_parameters` of 5)."""

from __future__ import annotations

from vramledger.models.config import MAX_DIMENSION, Config
from vramledger.models.model import Rope


def rope_from_config(
    config: Config,
    head_dim: int,
    *,
    max_positions: int,
    rotary: int | None = None,
    layer_type: str = "",
) -> Rope:
    """The rotary embedding of a config; `rotary` overrides head_dim x partial_rotary_factor.

    Sections (`mrope_section`) make a default table a multimodal one, "mrope". `layer_type` picks the table of one kind of layer where `rope_parameters` is keyed by kind (Gemma 3).
    Raises ConfigError for a partial factor outside 0 to 1, and for a scaling factor that is not above 0 or that
    takes the positions beyond 2^31.
    """
    scaling = config.optional_sub("rope_scaling") or config.optional_sub("rope_parameters")
    if scaling is not None and layer_type and layer_type in scaling:
        scaling = scaling.sub(layer_type)
    source = scaling if scaling is not None and "partial_rotary_factor" in scaling else config
    partial = source.number("partial_rotary_factor", "rope_pct", "rotary_pct", default=1.0)
    if not 0 <= partial <= 1:
        raise source.fail("partial_rotary_factor", f"is {partial}, outside 0 to 1")
    width = rotary if rotary is not None else int(head_dim * partial)
    if scaling is None:
        return Rope(rotary_dim=width, max_positions=max_positions)
    kind = scaling.text("rope_type", "type", default="default")
    if kind == "default" and scaling.items("mrope_section"):
        kind = "mrope"
    original = scaling if "original_max_position_embeddings" in scaling else config
    original_positions = original.integer("original_max_position_embeddings", default=0, minimum=0)
    factor = scaling.number("factor", default=1.0)
    longest = max(max_positions, original_positions, 1)
    if not 0 < factor <= MAX_DIMENSION / longest:
        raise scaling.fail(
            "factor", f"is {factor}; it must be above 0, and {longest} positions times it at most 2^31"
        )
    return Rope(
        rotary_dim=width,
        max_positions=max_positions,
        scaling=_RENAMED.get(kind, kind),
        factor=factor,
        original_positions=original_positions,
    )


_RENAMED = {"su": "longrope"}
