"""InternLM: Llama's layer with a bias on all four attention projections (InternLM's modeling_internlm.py)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return biased_attention(config, model_id, "InternLMForCausalLM")


def biased_attention(config: Config, model_id: str, default_class: str) -> Model:
    """Llama's layer; `bias` (true by default) is on q, k, v and o."""
    bias = config.flag("bias", default=True)
    return gated_decoder(config, model_id, default_class, bias=bias, o_bias=bias)
