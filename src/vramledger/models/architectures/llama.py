"""Llama and everything with its tensor layout (transformers models/llama/modeling_llama.py)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    attention_bias = config.flag("attention_bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "LlamaForCausalLM",
        bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", default=False),
    )
