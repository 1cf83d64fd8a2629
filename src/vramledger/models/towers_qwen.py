"""The vision transformer that Qwen3-VL, Qwen3.5 and their mixtures share (transformers
models/qwen3_vl/modeling_qwen3_vl.py, Qwen3VLVisionModel)."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.models.blocks import Place
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.model import Tower
from vramledger.models.tensors import (
    AxisKind,
    Component,
    Role,
    Tensor,
    axis,
    hidden,
    intermediate,
    q_heads,
    qkv_heads,
    whole,
)

IMAGE_PIXELS = 16_777_216
"""Largest image of the family's published preprocessor_config.json (`size.longest_edge`, an area)."""


def qwen3_vision_tower(
    config: Config,
    *,
    name: str = "model.visual",
    deepstack_default: Sequence[int] = (),
    max_pixels: int = IMAGE_PIXELS,
) -> tuple[tuple[Tensor, ...], Tower]:
    """Tensors and tower of a `vision_config`, under `name.`.

    `deepstack_default` is the model class's `deepstack_visual_indexes` where the file states none: (8, 16, 24)
    for Qwen3-VL, nothing for Qwen3.5. A merged token covers spatial_merge_size^2 patches; the largest image
    is not in config.json, so `max_pixels` is noted as assumed. Raises ConfigError.
    """
    width = config.integer("hidden_size", default=1152)
    depth = config.num_layers("depth", default=27)
    heads = config.integer("num_heads", default=16)
    inner = config.integer("intermediate_size", default=4304)
    out = config.integer("out_hidden_size", default=3584)
    channels = config.integer("in_channels", default=3, maximum=1024)
    patch = config.integer("patch_size", default=16, maximum=4096)
    frames = config.integer("temporal_patch_size", default=2, maximum=1024)
    merge = config.integer("spatial_merge_size", default=2, maximum=64)
    positions = config.integer("num_position_embeddings", default=2304)
    if width % heads:
        raise config.fail("hidden_size", f"{width} does not divide by num_heads {heads}")
    if "deepstack_visual_indexes" in config:
        taps = config.integers("deepstack_visual_indexes", maximum=MAX_LAYERS)
    else:
        taps = tuple(deepstack_default)

    root = Place(prefix=f"{name}.", component=Component.VISION)
    root.tensor(
        "patch_embed.proj.weight",
        Role.OTHER,
        hidden(width),
        whole(channels),
        whole(frames),
        whole(patch),
        whole(patch),
    )
    root.tensor("patch_embed.proj.bias", Role.OTHER, hidden(width))
    root.tensor(
        "pos_embed.weight", Role.POSITION_EMBEDDING, axis(AxisKind.POSITION, positions), hidden(width)
    )
    block = root.at(f"{name}.blocks.{{block}}.", copies=depth)
    block.norm("norm1", width, bias=True)
    block.norm("norm2", width, bias=True)
    block.linear("attn.qkv", Role.QKV, qkv_heads(heads, heads, width // heads), hidden(width), bias=True)
    block.linear("attn.proj", Role.O, hidden(width), q_heads(heads, width // heads), bias=True)
    block.linear("mlp.linear_fc1", Role.UP, intermediate(inner), hidden(width), bias=True)
    block.linear("mlp.linear_fc2", Role.DOWN, hidden(width), intermediate(inner), bias=True)
    merged = width * merge * merge
    _merger(root.at(f"{name}.merger.", component=Component.PROJECTOR), norm=width, merged=merged, out=out)
    if taps:
        extra = root.at(
            f"{name}.deepstack_merger_list.{{block}}.", copies=len(taps), component=Component.PROJECTOR
        )
        _merger(extra, norm=merged, merged=merged, out=out)

    max_tokens = max_pixels // (patch * merge) ** 2
    config.assume(
        f"largest image taken as {max_pixels} pixels ({max_tokens} tokens), "
        "from the published preprocessor_config.json; config.json does not say"
    )
    tower = Tower(
        modality="image",
        hidden_size=width,
        intermediate_size=inner,
        num_layers=depth,
        num_heads=heads,
        max_item_tokens=max_tokens,
        patches_per_token=merge * merge,
    )
    return tuple(root.into), tower


def _merger(place: Place, *, norm: int, merged: int, out: int) -> None:
    """Concatenates merged patches and projects them to the language model's width."""
    place.norm("norm", norm, bias=True)
    place.linear("linear_fc1", Role.PROJECTOR, intermediate(merged), hidden(merged), bias=True)
    place.linear("linear_fc2", Role.PROJECTOR, hidden(out), intermediate(merged), bias=True)
