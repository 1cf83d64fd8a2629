"""LLaVA-NeXT: LLaVA over several tiles of an image (transformers models/llava_next/modeling_llava_next.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.architectures.llava import llava_projector
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import vector
from vramledger.models.towers_clip import clip_vision

DEFAULT_GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="llama"), model_id)
    root = Place(component=Component.VISION)
    vision = config.sub("vision_config")
    vit, side = clip_vision(root.at("vision_tower.vision_model."), vision)
    llava_projector(root, config, vit, text.hidden_size)
    vector(root.at("", component=Component.PROJECTOR), "image_newline", text.hidden_size)
    tokens = _largest_image(config, side, vision.integer("image_size", default=336))
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=tokens, patches_per_token=1),),
    )


def _largest_image(config: Config, side: int, image: int) -> int:
    """Tokens of the largest tiling: the whole image once, all tiles, and one newline a row of patches.

    `image_grid_pinpoints` lists tilings as (height, width) in pixels; the class's list where it is absent.
    """
    grids = [tuple(grid) for grid in config.items("image_grid_pinpoints") if isinstance(grid, list | tuple)]
    best = 0
    for grid in grids or DEFAULT_GRIDS:
        if len(grid) != 2 or not all(isinstance(v, int) and 0 < v <= 65536 for v in grid):
            raise config.fail("image_grid_pinpoints", f"holds {grid!r}, not a height and a width in pixels")
        rows, columns = (value // image * side for value in grid)
        best = max(best, side * side + rows * (columns + 1))
    return best
