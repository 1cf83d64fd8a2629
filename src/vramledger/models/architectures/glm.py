"""GLM-4 in Transformers' own form: fused gate and up, biases on q, k and v (transformers models/glm)."""

from __future__ import annotations

from vramledger.models.blocks import fused_gated_mlp
from vramledger.models.config import Config
from vramledger.models.dense import skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return with_norms(config, model_id, "Glm", ("input_layernorm", "post_attention_layernorm"))


def with_norms(config: Config, model_id: str, family: str, norms: tuple[str, ...]) -> Model:
    """The layer that GLM and GLM-4-0414 share; half of each head is rotated."""
    config = config.with_defaults(
        f"{family}Config",
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=131072,
        partial_rotary_factor=0.5,
    )
    inner = config.integer("intermediate_size")
    frame = skeleton(config, f"{family}ForCausalLM")
    frame.attention(bias=config.flag("attention_bias", default=True))
    fused_gated_mlp(frame.layer, "mlp.gate_up_proj", "mlp.down_proj", width=frame.heads.width, inner=inner)
    frame.norms(*norms)
    channel = DenseMlp(intermediate=inner, gated=True)
    return frame.finish(model_id, frame.uniform(channel), rope=(frame.rope(),))
