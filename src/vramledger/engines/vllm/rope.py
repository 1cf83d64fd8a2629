"""Rotary tables that layers share.

Source: vllm model_executor/layers/rotary_embedding: a cos/sin cache of [positions, rotary_dim] in the
model dtype, one for each distinct rope configuration, replicated on every rank.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.rope_positions import VIDEO_POSITIONS, table_positions
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.support import has_left
from vramledger.formats.dtypes import DType
from vramledger.models.model import Model

FP32_TABLES = ("gpt_oss", "deepseek_v4")

# Qwen3-VL's layers and those built on them: positions stay within the tokens (models/qwen3_vl.py).
PLAIN_POSITIONS = ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text")
PLAIN_POSITIONS_SINCE = 32
# Image encoders that rotate by a table of their own, over half of a head (models/qwen2_vl.py, glm4_1v.py).
TOWER_TABLES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v")
TOWER_TABLES_SINCE = 12
TOWER_POSITIONS = 8192
# The index keys turn the other way round than the latents (models/deepseek_v2.py).
INDEXER_TABLES = ("deepseek_v32",)
INDEXER_TABLES_SINCE = 12


class RopeTables(Struct, frozen=True, kw_only=True):
    """All tables on one rank: their bytes, and the shapes that make them."""

    bytes: int
    formula: str


def rope_tables(model: Model, settings: Settings) -> RopeTables:
    """One table for each entry of `model.rope`, an indexer's and image encoders' beside them; gpt-oss and
    DeepSeek-V4 ask for fp32 ones. Through Transformers angles are computed anew in each step."""
    if has_left(model.architecture, settings.version):
        return RopeTables(bytes=0, formula="")
    plain = settings.version.since(PLAIN_POSITIONS_SINCE) and model.model_type in PLAIN_POSITIONS
    factor = 1 if plain else VIDEO_POSITIONS
    element = (DType.F32 if model.model_type in FP32_TABLES else settings.dtype).bits // 8
    shapes = [(table_positions(rope, video_positions=factor), rope.rotary_dim) for rope in model.rope]
    if model.model_type in INDEXER_TABLES and settings.version.since(INDEXER_TABLES_SINCE):
        shapes += shapes
    towers = model.model_type in TOWER_TABLES and not settings.flags.language_model_only
    if towers and settings.version.since(TOWER_TABLES_SINCE):
        shapes += [(TOWER_POSITIONS, tower.hidden_size // tower.num_heads // 2) for tower in model.towers]
    return RopeTables(
        bytes=sum(positions * width * element for positions, width in shapes),
        formula=" + ".join(f"[{positions} x {width}] x {element} B" for positions, width in shapes),
    )
