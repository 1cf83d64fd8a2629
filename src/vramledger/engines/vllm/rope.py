"""Rotary tables that layers share.

Source: vllm model_executor/layers/rotary_embedding: a cos/sin cache of [positions, rotary_dim] in the
model dtype, one for each distinct rope configuration, replicated on every rank.
"""

from __future__ import annotations

from vramledger.formats.dtypes import DType
from vramledger.models.model import Model, Rope

FP32_TABLES = ("gpt_oss", "deepseek_v4")


def table_positions(rope: Rope) -> int:
    """Rows of the cache: the config's positions, times the factor for linear scaling, the original length
    times the factor for yarn and deepseek_yarn; Llama 3 scaling keeps them. `longrope` keeps two caches, of
    the original and the long length; multimodal rope (`mrope`) keeps four times the positions."""
    match rope.scaling:
        case "linear":
            return int(rope.max_positions * rope.factor)
        case "dynamic":
            return int(rope.max_positions * rope.factor)
        case "yarn" | "deepseek_yarn":
            return int((rope.original_positions or rope.max_positions) * rope.factor)
        case "longrope" | "su":
            return rope.max_positions + (rope.original_positions or rope.max_positions)
        case "mrope":
            return 4 * rope.max_positions
        case _:
            return rope.max_positions


def rope_table_bytes(model: Model, dtype: DType) -> int:
    """Bytes of all distinct tables on one rank; gpt-oss and DeepSeek-V4 ask for fp32 ones."""
    distinct = set(model.rope)
    width = DType.F32.bits if model.model_type in FP32_TABLES else dtype.bits
    return sum(table_positions(rope) * rope.rotary_dim * width // 8 for rope in distinct)
