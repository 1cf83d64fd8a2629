"""MiniCPM3: multi-head latent attention with a dense MLP (OpenBMB's modeling_minicpm3.py).

Its engines may still cache expanded keys and values; what the mixer states is the latent.
"""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp, latent_attention
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, uniform_layers
from vramledger.models.dense import skeleton
from vramledger.models.mixers import DenseMlp, LatentAttention
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "MiniCPM3Config",
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        q_lora_rank=768,
        kv_lora_rank=256,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
    )
    if "model_type" not in config:
        config = config.replacing(model_type="minicpm3")
    width = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    if "v_head_dim" not in config and width % heads:
        raise config.fail("hidden_size", f"{width} does not divide by num_attention_heads {heads}")
    mixer = LatentAttention(
        q_heads=heads,
        q_lora_rank=config.integer("q_lora_rank"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.integer("v_head_dim", default=width // heads),
    )
    inner = config.integer("intermediate_size")
    shape = Heads(width=width, heads=heads, kv=heads, head_dim=mixer.nope_dim + mixer.rope_dim)
    frame = skeleton(config, "MiniCPM3ForCausalLM", heads=shape)
    latent_attention(
        frame.layer,
        "self_attn",
        width=width,
        heads=heads,
        q_lora_rank=mixer.q_lora_rank,
        kv_lora_rank=mixer.kv_lora_rank,
        nope_dim=mixer.nope_dim,
        rope_dim=mixer.rope_dim,
        v_head_dim=mixer.v_head_dim,
        bias=config.flag("attention_bias", default=False),
    )
    gated_mlp(frame.layer, "mlp", width=width, inner=inner)
    frame.norms("input_layernorm", "post_attention_layernorm")
    layers = uniform_layers(frame.count, mixer, DenseMlp(intermediate=inner, gated=True))
    return frame.finish(model_id, layers, rope=(frame.rope(rotary=mixer.rope_dim),))
