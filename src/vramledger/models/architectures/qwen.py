"""Qwen (first generation): fused q, k and v with biases, no biases elsewhere (Qwen's modeling_qwen.py).

`intermediate_size` is the width of both halves of the gated MLP together. Qwen-VL is the same model with a
`visual` tower in the file.
"""

from __future__ import annotations

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import Place, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.tensors import Component, Role
from vramledger.models.towers_openclip import openclip_resampled

NAMES = Names(base="transformer.", embedding="wte", layer="h.{layer}.", norm="ln_f")


def describe(config: Config, model_id: str) -> Model:
    text = _text(config, model_id)
    visual = config.optional_sub("visual")
    if visual is None:
        return text
    place = Place(prefix="transformer.visual.", component=Component.VISION)
    tower = openclip_resampled(place, visual)
    return compose(text, config, model_id, prefixes={}, extra=place.into, towers=(tower,))


def _text(config: Config, model_id: str) -> Model:
    config = _with_dtype(config.with_defaults("QWenConfig", kv_channels=128, max_position_embeddings=8192))
    width = config.integer("hidden_size")
    head_dim = config.integer("kv_channels")
    heads = config.integer("num_attention_heads")
    if heads * head_dim != width:
        raise config.fail("kv_channels", f"{head_dim} x {heads} heads is not hidden_size {width}")
    doubled = config.integer("intermediate_size", minimum=2)
    if doubled % 2:
        raise config.fail("intermediate_size", f"is {doubled}, which does not halve")
    bias = not config.flag("no_bias", default=True)

    shape = Heads(width=width, heads=heads, kv=heads, head_dim=head_dim)
    frame = skeleton(config, "QWenLMHeadModel", names=NAMES, heads=shape)
    frame.fused_attention("attn.c_attn", "attn.c_proj", bias=True, o_bias=bias)
    gated_mlp(
        frame.layer,
        "mlp",
        width=width,
        inner=doubled // 2,
        bias=bias,
        names=("w2", "w1", "c_proj"),
        roles=(Role.GATE, Role.UP, Role.DOWN),
    )
    frame.norms("ln_1", "ln_2")
    channel = DenseMlp(intermediate=doubled // 2, gated=True)
    return frame.finish(model_id, frame.uniform(channel), rope=(frame.rope(),))


def _with_dtype(config: Config) -> Config:
    """The file has flags bf16, fp16 and fp32 for an element type; with none set the loader picks bfloat16."""
    if "torch_dtype" in config or "dtype" in config:
        return config
    for flag, dtype in (("bf16", DType.BF16), ("fp16", DType.F16), ("fp32", DType.F32)):
        if config.flag(flag, default=False):
            return config.replacing(torch_dtype=dtype.value)
    return config.with_defaults("QWenConfig", torch_dtype=DType.BF16.value)
