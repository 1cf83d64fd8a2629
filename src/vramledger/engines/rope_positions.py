"""Rows of a rotary table (vllm and sglang layers/rotary_embedding, which have one origin)."""

from __future__ import annotations

from vramledger.models.model import Rope

VIDEO_POSITIONS = 4


def table_positions(rope: Rope, *, video_positions: int = VIDEO_POSITIONS) -> int:
    """Rows of the cache: the config's positions, times the factor for linear scaling, the original length
    times the factor for yarn and deepseek_yarn; Llama 3 scaling keeps them. `longrope` keeps two caches, of
    the original and the long length; multimodal rope (`mrope`) keeps `video_positions` times the positions."""
    match rope.scaling:
        case "linear" | "dynamic":
            return int(rope.max_positions * rope.factor)
        case "yarn" | "deepseek_yarn":
            return int((rope.original_positions or rope.max_positions) * rope.factor)
        case "longrope" | "su":
            return rope.max_positions + (rope.original_positions or rope.max_positions)
        case "mrope":
            return video_positions * rope.max_positions
        case _:
            return rope.max_positions
