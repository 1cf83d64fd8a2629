"""ConvNeXt-XXL of OpenCLIP, as timm stores it (timm 1.0.31 timm/models/convnext.py, convnext_xxlarge)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.model import Tower
from vramledger.models.tensors import Role, hidden, intermediate, whole
from vramledger.models.towers import patch_embedding

DEPTHS = (3, 4, 30, 3)
WIDTHS = (384, 768, 1536, 3072)
STEM, SHRINK, KERNEL, EXPAND = 4, 2, 7, 4
CLASSES = 1024


def convnext_xxlarge(place: Place) -> Tower:
    """Tensors of the encoder and its head under `place`. A layer scale is called `weight`, as Transformers
    renames timm's `gamma`."""
    patch_embedding(place, "stem.0", WIDTHS[0], 3, STEM, STEM)
    place.norm("stem.1", WIDTHS[0], bias=True)
    for stage, (depth, width) in enumerate(zip(DEPTHS, WIDTHS, strict=True)):
        if stage:
            before = WIDTHS[stage - 1]
            place.norm(f"stages.{stage}.downsample.0", before, bias=True)
            patch_embedding(place, f"stages.{stage}.downsample.1", width, before, SHRINK, SHRINK)
        block = place.at(f"{place.prefix}stages.{stage}.blocks.{{block}}.", copies=depth)
        patch_embedding(block, "conv_dw", width, 1, KERNEL, KERNEL)
        block.norm("norm", width, bias=True)
        inner = EXPAND * width
        block.linear("mlp.fc1", Role.UP, intermediate(inner), hidden(width), bias=True)
        block.linear("mlp.fc2", Role.DOWN, hidden(width), intermediate(inner), bias=True)
        block.tensor("weight", Role.OTHER, hidden(width))
    place.norm("head.norm", WIDTHS[-1], bias=True)
    place.linear("head.fc", Role.OTHER, whole(CLASSES), hidden(WIDTHS[-1]), bias=True)
    return Tower(
        modality="image",
        hidden_size=WIDTHS[-1],
        intermediate_size=EXPAND * WIDTHS[-1],
        num_layers=sum(DEPTHS),
        num_heads=0,
    )
