"""InternLM3: separate flags for the biases of q, k, v and of the rest (InternLM's modeling_internlm3.py)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "InternLM3Config", num_key_value_heads=2, head_dim=128, max_position_embeddings=32768
    )
    bias = config.flag("bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "InternLM3ForCausalLM",
        bias=config.flag("qkv_bias", default=False),
        o_bias=bias,
        mlp_bias=bias,
    )
