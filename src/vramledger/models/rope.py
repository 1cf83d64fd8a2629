"""Rotary embeddings as configs state them (`rope_scaling` of Transformers 4, `rope_parameters` of 5)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.model import Rope


def rope_from_config(config: Config, head_dim: int, *, max_positions: int, rotary: int | None = None) -> Rope:
    """The rotary embedding of a config; `rotary` overrides head_dim x partial_rotary_factor."""
    scaling = config.optional_sub("rope_scaling") or config.optional_sub("rope_parameters")
    partial = config.number("partial_rotary_factor", "rotary_pct", default=1.0)
    if scaling is not None and "partial_rotary_factor" in scaling:
        partial = scaling.number("partial_rotary_factor")
    width = rotary if rotary is not None else int(head_dim * partial)
    if scaling is None:
        return Rope(rotary_dim=width, max_positions=max_positions)
    kind = scaling.text("rope_type", "type", default="default")
    return Rope(
        rotary_dim=width,
        max_positions=max_positions,
        scaling=kind,
        factor=scaling.number("factor", default=1.0),
        original_positions=scaling.integer("original_max_position_embeddings", default=0, minimum=0),
    )
