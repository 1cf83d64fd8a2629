"""InternViT, in the names of its own code and of Transformers (models/internvl/modeling_internvl.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.tensors import AxisKind, Role, axis, hidden, whole
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    vector,
    vit_from_config,
)

DEFAULTS = Vit(width=1024, heads=16, inner=4096, layers=24)

HF_NAMES = BlockNames(
    attention=("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.projection_layer"),
    mlp=("mlp.fc1", "mlp.fc2"),
    norms=("layernorm_before", "layernorm_after"),
)
OWN_NAMES = BlockNames(
    attention=("attn.qkv", "attn.proj"), mlp=("mlp.fc1", "mlp.fc2"), norms=("norm1", "norm2")
)


def _embeddings(place: Place, config: Config, vit: Vit, names: tuple[str, str, str]) -> int:
    """Class token, positions and patch convolution; patches a side."""
    channels = config.integer("num_channels", default=3, maximum=1024)
    patch = pixels(config, "patch_size", 14)
    side = grid_side(config, pixels(config, "image_size", 448), patch)
    token, table, conv = names
    place.tensor(token, Role.OTHER, whole(1), whole(1), hidden(vit.width))
    rows = axis(AxisKind.POSITION, side * side + 1)
    place.tensor(table, Role.POSITION_EMBEDDING, whole(1), rows, hidden(vit.width))
    patch_embedding(place, conv, vit.width, channels, patch, patch)
    return side


def intern_vit_hf(place: Place, config: Config) -> tuple[Vit, int]:
    """InternVLVisionModel of Transformers; dimensions and patches a side. Raises ConfigError."""
    vit = vit_from_config(config, DEFAULTS)
    bias = config.flag("attention_bias", default=False)
    names = (
        "embeddings.cls_token",
        "embeddings.position_embeddings",
        "embeddings.patch_embeddings.projection",
    )
    side = _embeddings(place, config, vit, names)
    layer_norm = config.text("norm_type", default="layer_norm") == "layer_norm"
    block = place.at(place.prefix + "encoder.layer.{block}.", copies=vit.layers)
    encoder_block(block, vit, HF_NAMES, bias=bias, out_bias=True, mlp_bias=True, norm_bias=layer_norm)
    if config.flag("use_qk_norm", default=False):
        block.norm("attention.q_norm", vit.width)
        block.norm("attention.k_norm", vit.width)
    for scale in ("lambda_1", "lambda_2"):
        vector(block, scale, vit.width)
    if not config.flag("use_mean_pooling", default=True):
        place.norm("layernorm", vit.width, bias=True)
    return vit, side


def intern_vit(place: Place, config: Config) -> tuple[Vit, int]:
    """InternVisionModel of the original checkpoints; dimensions and patches a side. Raises ConfigError."""
    vit = vit_from_config(config, Vit(width=3200, heads=25, inner=12800, layers=48))
    names = ("embeddings.class_embedding", "embeddings.position_embedding", "embeddings.patch_embedding")
    side = _embeddings(place, config, vit, names)
    layer_norm = config.text("norm_type", default="rms_norm") == "layer_norm"
    block = place.at(place.prefix + "encoder.layers.{block}.", copies=vit.layers)
    encoder_block(
        block,
        vit,
        OWN_NAMES,
        bias=config.flag("qkv_bias", default=False),
        out_bias=True,
        mlp_bias=True,
        norm_bias=layer_norm,
    )
    if config.flag("qk_normalization", default=True):
        block.norm("attn.q_norm", vit.width)
        block.norm("attn.k_norm", vit.width)
    for scale in ("ls1", "ls2"):
        vector(block, scale, vit.width)
    return vit, side


TILES = 12
"""Most tiles of an image (`max_dynamic_patch`), in the class and in Transformers' image processor."""


def shuffled(config: Config, side: int) -> int:
    """Patches that pixel shuffle makes one token: (1 / downsample_ratio)^2, which must divide the grid."""
    ratio = config.number("downsample_ratio", default=0.5)
    factor = round(1 / ratio) if 0.01 < ratio <= 1 else 0
    if factor == 0 or abs(factor * ratio - 1) > 1e-6 or side % factor:
        raise config.fail("downsample_ratio", f"{ratio} does not divide a side of {side} patches")
    return factor * factor
