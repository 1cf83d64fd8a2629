"""MiniCPM-V 2 and 2.6: a text model under `llm.`, SigLIP under `vpm.`, a resampler (OpenBMB's modeling_minicpmv.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.tensors import Component
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    patch_embedding,
    positions,
)
from vramledger.models.towers_clip import siglip_vision
from vramledger.models.towers_resampler import resampled_output, resampler

TIMM_SIGLIP = "vit_so400m_patch14_siglip_384.webli"
SO400M = Vit(width=1152, heads=16, inner=4304, layers=27)
SO400M_SIDE, SO400M_PATCH = 27, 14
TIMM_NAMES = BlockNames(
    attention=("attn.qkv", "attn.proj"), mlp=("mlp.fc1", "mlp.fc2"), norms=("norm1", "norm2")
)


def describe(config: Config, model_id: str) -> Model:
    vision = config.optional_sub("vision_config")
    version = config.number("version", default=2.0)
    if (version, vision is None) not in ((2.0, True), (2.6, False)):
        raise config.fail("version", f"is {version}; MiniCPM-V 2 and 2.6 are described here")
    model_type = "minicpm" if vision is None else "qwen2"
    text = architectures.describe(config.replacing(model_type=model_type, architectures=None), model_id)
    root = Place(prefix="vpm.", component=Component.VISION)
    dropped = config.flag("drop_vision_last_layer", default=True)
    if vision is None:
        vit = _timm_tower(root, config, dropped)
    else:
        layers = vision.num_layers(default=SO400M.layers) - dropped
        if layers < 1:
            raise vision.fail("num_hidden_layers", "leaves no layer after the last is dropped")
        vit, _ = siglip_vision(root, vision, stored_layers=layers, head=False)
    queries = config.integer("query_num", default=64, maximum=65536)
    width = text.hidden_size
    pool = root.at("resampler.", component=Component.PROJECTOR)
    resampler(pool, config, queries=queries, width=width, kv_width=vit.width, stored_grid=vision is None)
    resampled_output(pool, width)
    return compose(
        text,
        config,
        model_id,
        prefixes={"": "llm."},
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=queries * (_slices(config) + 1)),),
    )


def _timm_tower(place: Place, config: Config, dropped: bool) -> Vit:
    """SigLIP SO400M as timm builds it, which the config only names; without its last layer where `dropped`."""
    name = config.text("vision_encoder")
    if name != TIMM_SIGLIP:
        raise config.fail("vision_encoder", f"{name!r} is not a tower described here ({TIMM_SIGLIP})")
    vit = SO400M.with_layers(SO400M.layers - dropped)
    patch_embedding(place, "patch_embed.proj", vit.width, 3, SO400M_PATCH, SO400M_PATCH)
    positions(place, "pos_embed", vit.width, SO400M_SIDE * SO400M_SIDE)
    encoder_block(place.at("vpm.blocks.{block}.", copies=vit.layers), vit, TIMM_NAMES)
    place.norm("norm", vit.width, bias=True)
    return vit


def _slices(config: Config) -> int:
    """Most slices of an image beside the whole."""
    if not config.flag("slice_mode", default=True):
        return 0
    source = config.optional_sub("slice_config") or config
    return source.integer("max_slice_nums", default=9, maximum=4096)
