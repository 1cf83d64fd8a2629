"""The vision encoder of Qwen-VL: OpenCLIP's ViT with a resampler that asks 256 queries (Qwen-VL's visual.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Tower
from vramledger.models.tensors import Role, hidden
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    positions,
    projection,
    torch_attention,
)

_NAMES = BlockNames(
    attention=("attn.in_proj", "attn.out_proj"), mlp=("mlp.c_fc", "mlp.c_proj"), norms=("ln_1", "ln_2")
)
_QUERIES = 256
_STORED_POSITIONS = 256
_CHANNELS = 3
_RESAMPLER_HEAD_DIM = 128


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
    _resampler(place, config, width, config.integer("output_dim"))
    return vit.tower("image", max_item_tokens=_QUERIES, patches_per_token=max(patches // _QUERIES, 1))


def _resampler(place: Place, config: Config, inp: int, out: int) -> None:
    """Cross attention from learnt queries over the encoder's output, into the language model's width."""
    if out % _RESAMPLER_HEAD_DIM:
        raise config.fail("output_dim", f"{out} does not divide into heads of {_RESAMPLER_HEAD_DIM}")
    positions(place, "attn_pool.pos_embed", out, _QUERIES)
    positions(place, "attn_pool.query", out, _QUERIES)
    projection(place, "attn_pool.kv_proj", out, inp)
    torch_attention(place, "attn_pool.attn", out, out // _RESAMPLER_HEAD_DIM)
    for norm in ("attn_pool.ln_q", "attn_pool.ln_kv", "ln_post"):
        place.norm(norm, out, bias=True)
    place.tensor("proj", Role.PROJECTOR, hidden(out), hidden(out))
