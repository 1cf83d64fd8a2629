"""CLIP and SigLIP vision encoders (transformers models/clip, models/siglip and models/siglip2)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.tensors import Role, hidden, whole
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    positions,
    torch_attention,
    vector,
    vit_from_config,
)

CLIP_BASE = Vit(width=768, heads=12, inner=3072, layers=12)
CLIP_LARGE_336 = Config(
    {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
    },
    "openai/clip-vit-large-patch14-336",
)
"""The published tower that LLaVA 1.5 and Phi-3-vision name instead of describing it."""

NAMES = BlockNames(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    mlp=("mlp.fc1", "mlp.fc2"),
    norms=("layer_norm1", "layer_norm2"),
)


def clip_vision(place: Place, config: Config) -> tuple[Vit, int]:
    """Tensors of a CLIPVisionModel under `place`; its dimensions and patches a side. Raises ConfigError."""
    vit = vit_from_config(config, CLIP_BASE)
    channels = config.integer("num_channels", default=3, maximum=1024)
    patch = pixels(config, "patch_size", 32)
    side = grid_side(config, pixels(config, "image_size", 224), patch)
    vector(place, "embeddings.class_embedding", vit.width)
    patch_embedding(place, "embeddings.patch_embedding", vit.width, channels, patch, patch, bias=False)
    positions(place, "embeddings.position_embedding.weight", vit.width, side * side + 1)
    place.norm("pre_layrnorm", vit.width, bias=True)
    encoder_block(place.at(place.prefix + "encoder.layers.{block}.", copies=vit.layers), vit, NAMES)
    place.norm("post_layernorm", vit.width, bias=True)
    return vit, side


def siglip_vision(
    place: Place, config: Config, *, stored_layers: int | None = None, head: bool | None = None
) -> tuple[Vit, int]:
    """Tensors of a SiglipVisionModel under `place`; its dimensions and patches a side.

    `stored_layers` where a model drops the last layers, `head` where it decides about the pooling head and
    not the config (`vision_use_head`). Raises ConfigError.
    """
    vit = vit_from_config(config, CLIP_BASE)
    if stored_layers is not None:
        vit = vit.with_layers(stored_layers)
    channels = config.integer("num_channels", default=3, maximum=1024)
    patch = pixels(config, "patch_size", 16)
    side = grid_side(config, pixels(config, "image_size", 224), patch)
    patch_embedding(place, "embeddings.patch_embedding", vit.width, channels, patch, patch)
    positions(place, "embeddings.position_embedding.weight", vit.width, side * side)
    _siglip_rest(place, vit, config.flag("vision_use_head", default=True) if head is None else head)
    return vit, side


def siglip2_vision(place: Place, config: Config) -> Vit:
    """Tensors of a Siglip2VisionModel: patches come flattened, positions are a table of `num_patches`."""
    vit = vit_from_config(config, CLIP_BASE)
    channels = config.integer("num_channels", default=3, maximum=1024)
    patch = pixels(config, "patch_size", 16)
    patch_embedding(place, "embeddings.patch_embedding", vit.width, channels * patch * patch)
    positions(
        place, "embeddings.position_embedding.weight", vit.width, config.integer("num_patches", default=256)
    )
    _siglip_rest(place, vit, config.flag("vision_use_head", default=True))
    return vit


def _siglip_rest(place: Place, vit: Vit, head: bool) -> None:
    encoder_block(place.at(place.prefix + "encoder.layers.{block}.", copies=vit.layers), vit, NAMES)
    place.norm("post_layernorm", vit.width, bias=True)
    if head:
        pool = place.at(place.prefix + "head.")
        pool.tensor("probe", Role.OTHER, whole(1), whole(1), hidden(vit.width))
        torch_attention(pool, "attention", vit.width, vit.heads)
        pool.linear("mlp.fc1", Role.UP, hidden(vit.inner), hidden(vit.width), bias=True)
        pool.linear("mlp.fc2", Role.DOWN, hidden(vit.width), hidden(vit.inner), bias=True)
        pool.norm("layernorm", vit.width, bias=True)
