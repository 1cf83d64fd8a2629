"""Mamba-2 (transformers models/mamba2/modeling_mamba2.py)."""

from __future__ import annotations

from vramledger.models.architectures.mamba import finish
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.mixers import Mamba2
from vramledger.models.model import Model
from vramledger.models.recurrent import checked_mamba2, mamba2


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size", default=4096)
    recurrent = checked_mamba2(
        config,
        Mamba2(
            heads=config.integer("num_heads", default=128),
            head_dim=config.integer("head_dim", default=64),
            groups=config.integer("n_groups", default=8),
            state=config.integer("state_size", default=128),
            conv_kernel=config.integer("conv_kernel", default=4, maximum=4096),
        ),
        inner=config.integer("expand", default=2, maximum=1024) * width,
        heads_key="num_heads",
    )
    root = Place(prefix="backbone.")
    layer = root.at("backbone.layers.{layer}.", range(config.num_layers()))
    layer.norm("norm", width)
    mamba2(
        layer,
        "mixer",
        recurrent,
        width=width,
        bias=config.flag("use_bias", default=False),
        conv_bias=config.flag("use_conv_bias", default=True),
    )
    return finish(
        config, model_id, root, recurrent, width=width, default_tied=False, default_class="Mamba2ForCausalLM"
    )
