"""Gemma 4's vision and audio encoders (transformers models/gemma4/modeling_gemma4.py)."""

from __future__ import annotations

from msgspec import Struct

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Tower
from vramledger.models.tensors import (
    Axis,
    Component,
    Role,
    hidden,
    intermediate,
    kv_heads,
    q_heads,
    whole,
)
from vramledger.models.towers import Vit, patch_embedding, pixels, positions, projection, vit_from_config

SOFT_TOKENS = 280
"""`max_soft_tokens` of Gemma4ImageProcessor."""
AUDIO_TOKENS = 750
"""`audio_seq_length` of Gemma4Processor: the cap on one clip."""
SUBSAMPLED = 4
"""Mel frames a token: two convolutions of stride 2."""


class ClippableLinears(Struct, frozen=True):
    """Linear layers that a checkpoint may give four scalar bounds (`use_clipped_linears`)."""

    place: Place
    clipped: bool

    def add(self, name: str, role: Role, out: Axis, inp: Axis) -> None:
        self.place.linear(f"{name}.linear", role, out, inp)
        if self.clipped:
            for bound in ("input_min", "input_max", "output_min", "output_max"):
                self.place.tensor(f"{name}.{bound}", Role.OTHER, parameter=False)


def gemma4_vision(root: Place, config: Config) -> Tower:
    """The tower under `model.vision_tower.`. Raises ConfigError."""
    vit = vit_from_config(config, Vit(width=768, heads=12, inner=3072, layers=16))
    kv = config.integer("num_key_value_heads", default=12)
    head_dim = config.integer("head_dim", default=64)
    patch = pixels(config, "patch_size", 16)
    pool = config.integer("pooling_kernel_size", default=3, maximum=64)
    place = root.at("model.vision_tower.", component=Component.VISION)
    table = config.integer("position_embedding_size", default=10240)
    positions(place, "patch_embedder.position_embedding_table", vit.width, 2, table)
    patch_embedding(place, "patch_embedder.input_proj", vit.width, 3 * patch * patch, bias=False)
    block = place.at("model.vision_tower.encoder.layers.{block}.", copies=vit.layers)
    linears = ClippableLinears(block, config.flag("use_clipped_linears", default=False))
    width = hidden(vit.width)
    linears.add("self_attn.q_proj", Role.Q, q_heads(vit.heads, head_dim), width)
    linears.add("self_attn.k_proj", Role.K, kv_heads(kv, head_dim), width)
    linears.add("self_attn.v_proj", Role.V, kv_heads(kv, head_dim), width)
    linears.add("self_attn.o_proj", Role.O, width, q_heads(vit.heads, head_dim))
    linears.add("mlp.gate_proj", Role.GATE, intermediate(vit.inner), width)
    linears.add("mlp.up_proj", Role.UP, intermediate(vit.inner), width)
    linears.add("mlp.down_proj", Role.DOWN, width, intermediate(vit.inner))
    for norm in ("q_norm", "k_norm"):
        block.norm(f"self_attn.{norm}", head_dim)
    for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        block.norm(f"{norm}_layernorm", vit.width)
    if config.flag("standardize", default=False):
        for name in ("std_bias", "std_scale"):
            place.tensor(name, Role.OTHER, width, parameter=False)
    return vit.tower(
        "image",
        max_item_tokens=config.integer("default_output_length", default=SOFT_TOKENS, maximum=65536),
        patches_per_token=pool * pool,
    )


def gemma4_audio(root: Place, config: Config) -> Tower:
    """The conformer under `model.audio_tower.`; each feed-forward is four times the width. Raises ConfigError."""
    vit = vit_from_config(
        config.replacing(intermediate_size=4 * config.integer("hidden_size", default=1024)),
        Vit(width=1024, heads=8, inner=4096, layers=12),
    )
    channels = config.integers("subsampling_conv_channels", minimum=1, maximum=65536) or (128, 32)
    if len(channels) != 2:
        raise config.fail("subsampling_conv_channels", f"must be two numbers, not {len(channels)}")
    first, second = channels
    place = root.at("model.audio_tower.", component=Component.AUDIO)
    for index, (inp, out) in enumerate(((1, first), (first, second))):
        place.tensor(
            f"subsample_conv_projection.layer{index}.conv.weight",
            Role.OTHER,
            whole(out),
            whole(inp),
            whole(3),
            whole(3),
        )
        place.norm(f"subsample_conv_projection.layer{index}.norm", out)
    # As the class computes it: a quarter of the first channels (which number the mel bins) times the second.
    bins = first // SUBSAMPLED * second
    place.linear("subsample_conv_projection.input_proj_linear", Role.OTHER, hidden(vit.width), whole(bins))
    block = place.at("model.audio_tower.layers.{block}.", copies=vit.layers)
    _conformer(block, vit, config)
    out = config.integer("output_proj_dims", default=1536)
    projection(place, "output_proj", out, vit.width, bias=True)
    return vit.tower("audio", max_item_tokens=AUDIO_TOKENS, patches_per_token=1)


def _conformer(block: Place, vit: Vit, config: Config) -> None:
    linears = ClippableLinears(block, config.flag("use_clipped_linears", default=True))
    width = hidden(vit.width)
    heads = q_heads(vit.heads, vit.head_dim)
    for feed in ("feed_forward1", "feed_forward2"):
        linears.add(f"{feed}.ffw_layer_1", Role.UP, intermediate(vit.inner), width)
        linears.add(f"{feed}.ffw_layer_2", Role.DOWN, width, intermediate(vit.inner))
        block.norm(f"{feed}.pre_layer_norm", vit.width)
        block.norm(f"{feed}.post_layer_norm", vit.width)
    for name, role in (("q_proj", Role.Q), ("k_proj", Role.K), ("v_proj", Role.V)):
        linears.add(f"self_attn.{name}", role, heads, width)
    linears.add("self_attn.post", Role.O, width, heads)
    block.tensor("self_attn.per_dim_scale", Role.OTHER, whole(vit.head_dim))
    block.linear("self_attn.relative_k_proj", Role.OTHER, heads, width)
    kernel = config.integer("conv_kernel_size", default=5, maximum=65536)
    linears.add("lconv1d.linear_start", Role.UP, intermediate(2 * vit.width), width)
    linears.add("lconv1d.linear_end", Role.DOWN, width, intermediate(vit.width))
    block.tensor("lconv1d.depthwise_conv1d.weight", Role.OTHER, width, whole(1), whole(kernel))
    block.norm("lconv1d.pre_layer_norm", vit.width)
    block.norm("lconv1d.conv_norm", vit.width)
    for norm in ("norm_pre_attn", "norm_post_attn", "norm_out"):
        block.norm(norm, vit.width)
