"""The vision encoder of Qwen-VL: OpenCLIP's ViT with a resampler that asks 256 queries (Qwen-VL's visual.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Tower
from vramledger.models.tensors import Component
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    positions,
)
from vramledger.models.towers_resampler import resampled_output, resampler

_NAMES = BlockNames(
    attention=("attn.in_proj", "attn.out_proj"), mlp=("mlp.c_fc", "mlp.c_proj"), norms=("ln_1", "ln_2")
)
_QUERIES = 256
_STORED_POSITIONS = 256
_CHANNELS = 3


def openclip_resampled(place: Place, config: Config) -> Tower:
    """Tensors of the `visual` object of Qwen-VL under `place`, and the tower. Raises ConfigError.

    The table of positions is stored for 16 x 16 patches and stretched to the image's at run time.
    """
    width = config.integer("width")
    heads = config.integer("heads")
    if width % heads:
        raise config.fail("width", f"{width} does not divide by heads {heads}")
    ratio = config.number("mlp_ratio")
    if not 0 < ratio <= 64:
        raise config.fail("mlp_ratio", f"is {ratio}, outside 0 to 64")
    vit = Vit(width=width, heads=heads, inner=max(int(width * ratio), 1), layers=config.num_layers("layers"))
    patch = pixels(config, "patch_size", 14)
    patches = grid_side(config, pixels(config, "image_size", 448), patch) ** 2

    patch_embedding(place, "conv1", width, _CHANNELS, patch, patch, bias=False)
    positions(place, "positional_embedding", width, _STORED_POSITIONS)
    place.norm("ln_pre", width, bias=True)
    encoder_block(place.at(place.prefix + "transformer.resblocks.{block}.", copies=vit.layers), vit, _NAMES)
    out = config.integer("output_dim")
    pool = place.at(place.prefix + "attn_pool.", component=Component.PROJECTOR)
    resampler(pool, config, queries=_QUERIES, width=out, kv_width=width, stored_grid=True)
    resampled_output(pool.at(place.prefix), out)
    return vit.tower("image", max_item_tokens=_QUERIES, patches_per_token=max(patches // _QUERIES, 1))
