"""OLMo 2: norms after each block, and over all of q and of k (transformers models/olmo2)."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import layers_of_mixers
from vramledger.models.dense import Skeleton, skeleton
from vramledger.models.mixers import DenseMlp, TokenMixer
from vramledger.models.model import Model, Rope


def describe(config: Config, model_id: str) -> Model:
    frame = skeleton(config, "Olmo2ForCausalLM")
    return post_norm(frame, model_id, rope=(frame.rope(),))


def post_norm(
    frame: Skeleton,
    model_id: str,
    *,
    rope: tuple[Rope, ...],
    mixers: Sequence[TokenMixer] | None = None,
) -> Model:
    """The layer of OLMo 2 and 3. A rank keeps the norms of q and k whole: they span all heads."""
    heads = frame.heads
    bias = frame.config.flag("attention_bias", default=False)
    inner = frame.config.integer("intermediate_size")
    frame.attention(bias=bias, o_bias=bias)
    frame.layer.norm("self_attn.q_norm", heads.heads * heads.head_dim)
    frame.layer.norm("self_attn.k_norm", heads.kv * heads.head_dim)
    gated_mlp(frame.layer, "mlp", width=heads.width, inner=inner)
    frame.norms("post_attention_layernorm", "post_feedforward_layernorm")
    channel = DenseMlp(intermediate=inner, gated=True)
    layers = frame.uniform(channel) if mixers is None else layers_of_mixers(mixers, channel)
    return frame.finish(model_id, layers, rope=rope)
