"""MiniCPM (dense and MoE) and MiniCPM4: Llama's layer with a tied head by default (OpenBMB's modeling_minicpm.py).

The mixture stores experts as w1 (gate), w3 (up) and w2 (down) (vLLM's minicpm.py).
"""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp, routed_experts, router
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, uniform_layers
from vramledger.models.dense import skeleton
from vramledger.models.mixers import ChannelMixer, DenseMlp, MixtureOfExperts
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("MiniCPMConfig", tie_word_embeddings=True)
    inner = config.integer("intermediate_size")
    count = config.integer("num_experts", default=0, minimum=0)
    bias = config.flag("attention_bias", default=False)
    frame = skeleton(config, "MiniCPMForCausalLM")
    frame.attention(bias=bias, o_bias=bias)
    channel: ChannelMixer
    if count:
        width = frame.heads.width
        top_k = config.integer("num_experts_per_tok", maximum=count)
        router(frame.layer, "mlp.gate", width=width, count=count)
        routed_experts(
            frame.layer, "mlp.experts", width=width, inner=inner, count=count, names=("w1", "w3", "w2")
        )
        channel = MixtureOfExperts(num_experts=count, top_k=top_k, intermediate=inner)
    else:
        gated_mlp(frame.layer, "mlp", width=frame.heads.width, inner=inner)
        channel = DenseMlp(intermediate=inner, gated=True)
    frame.norms("input_layernorm", "post_attention_layernorm")
    layers = uniform_layers(frame.count, full_attention(frame.heads), channel)
    return frame.finish(model_id, layers, rope=(frame.rope(),))
