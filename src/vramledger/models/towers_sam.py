"""Segment Anything's ViT with windows, as DeepSeek-OCR uses it
(transformers models/deepseek_ocr2/modeling_deepseek_ocr2.py, DeepseekOcr2SamVisionEncoder)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.tensors import AxisKind, Role, axis, hidden, whole
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    positions,
    vit_from_config,
)

NAMES = BlockNames(
    attention=("attn.qkv", "attn.proj"), mlp=("mlp.lin1", "mlp.lin2"), norms=("norm1", "norm2")
)
MLP_RATIO, WINDOW, PATCH, NECK = 4, 14, 16, 256


def sam_vision(place: Place, config: Config, *, image: int, out: int) -> tuple[Vit, int]:
    """Tensors under `place`; dimensions, and tokens of an image of `image` pixels a side.

    `config` is the object of width, layers and heads. The neck and two convolutions of stride 2 end at `out`
    channels. Raises ConfigError.
    """
    inner = MLP_RATIO * config.integer("width", default=768)
    vit = vit_from_config(
        config.replacing(intermediate_size=inner),
        Vit(width=768, heads=12, inner=3072, layers=12),
        width="width",
        heads="heads",
        layers="layers",
    )
    side = grid_side(config, image, PATCH)
    whole_image = config.integers("global_attn_indexes", maximum=MAX_LAYERS)
    positions(place, "pos_embed", vit.width, side, side)
    patch_embedding(place, "patch_embed.proj", vit.width, 3, PATCH, PATCH)
    block = place.at(place.prefix + "blocks.{block}.", copies=vit.layers)
    encoder_block(block, vit, NAMES)
    seeing_all = len({index for index in whole_image if index < vit.layers})
    for copies, window in ((seeing_all, side), (vit.layers - seeing_all, WINDOW)):
        relative = place.at(block.prefix, copies=copies)
        for direction in ("rel_pos_h", "rel_pos_w"):
            rows = axis(AxisKind.POSITION, 2 * window - 1)
            relative.tensor(f"attn.{direction}", Role.POSITION_EMBEDDING, rows, whole(vit.head_dim))
    _neck(place, config, vit.width, out)
    return vit, (side // 4) ** 2


def _neck(place: Place, config: Config, width: int, out: int) -> None:
    patch_embedding(place, "neck.0", NECK, width, 1, 1, bias=False)
    place.norm("neck.1", NECK, bias=True)
    patch_embedding(place, "neck.2", NECK, NECK, 3, 3, bias=False)
    place.norm("neck.3", NECK, bias=True)
    channels = config.integers("downsample_channels", minimum=1, maximum=65536)
    middle = channels[0] if channels else 2 * NECK
    patch_embedding(place, "net_2", middle, NECK, 3, 3, bias=False)
    place.tensor("net_3.weight", Role.OTHER, hidden(out), whole(middle), whole(3), whole(3))
