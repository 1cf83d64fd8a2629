"""StableLM: Llama's layer with biased norms and a quarter of each head rotated (transformers models/stablelm).

StableLM 2 12B runs attention and MLP beside each other and normalises q and k with a weight for each head.
"""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.dense import Skeleton, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Role, axis, whole


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("StableLmConfig", max_position_embeddings=4096)
    if "rope_pct" not in config:
        config = config.with_defaults("StableLmConfig", partial_rotary_factor=0.25)
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "StableLmForCausalLM")
    frame.attention(bias=config.flag("use_qkv_bias", default=False))
    if config.flag("qk_layernorm", default=False):
        _head_norms(frame)
    gated_mlp(frame.layer, "mlp", width=frame.heads.width, inner=inner)
    frame.norms("input_layernorm", bias=True)
    if not config.flag("use_parallel_residual", default=False):
        frame.norms("post_attention_layernorm", bias=True)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=True))
    return frame.finish(model_id, layers, rope=(frame.rope(),), norm_bias=True)


def _head_norms(frame: Skeleton) -> None:
    """The checkpoint has one vector a head; here the heads are the first axis of one tensor."""
    each = whole(frame.heads.head_dim)
    for name, kind, heads in (
        ("q_layernorm", AxisKind.Q_HEADS, frame.heads.heads),
        ("k_layernorm", AxisKind.KV_HEADS, frame.heads.kv),
    ):
        frame.layer.tensor(f"self_attn.{name}.norms.{{block}}.weight", Role.NORM, axis(kind, heads), each)
