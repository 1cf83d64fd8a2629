"""Hunyuan (dense): Llama's layer with norms of q and k after the rotation (transformers models/hunyuan_v1_dense)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    bias = config.flag("attention_bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "HunYuanDenseV1ForCausalLM",
        bias=bias,
        o_bias=bias,
        qk_norm=True,
        qk_norm_names=("query_layernorm", "key_layernorm"),
    )
