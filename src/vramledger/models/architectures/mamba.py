"""Mamba (transformers models/mamba/modeling_mamba.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.mixers import Layer, Mamba1, Mamba2
from vramledger.models.model import Model
from vramledger.models.recurrent import dt_rank_from, mamba1


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size", default=768)
    expand = config.integer("expand", default=2, maximum=1024)
    recurrent = Mamba1(
        inner=config.integer("intermediate_size", default=expand * width),
        state=config.integer("state_size", default=16),
        conv_kernel=config.integer("conv_kernel", default=4, maximum=4096),
    )
    root = Place(prefix="backbone.")
    layer = root.at("backbone.layers.{layer}.", range(config.num_layers()))
    layer.norm("norm", width)
    mamba1(
        layer,
        "mixer",
        recurrent,
        width=width,
        dt_rank=dt_rank_from(config, "time_step_rank", width),
        bias=config.flag("use_bias", default=False),
        conv_bias=config.flag("use_conv_bias", default=True),
    )
    return finish(
        config, model_id, root, recurrent, width=width, default_tied=True, default_class="MambaForCausalLM"
    )


def finish(
    config: Config,
    model_id: str,
    root: Place,
    mixer: Mamba1 | Mamba2,
    *,
    width: int,
    default_tied: bool,
    default_class: str,
) -> Model:
    """Embedding, last norm, head and layers of a stack of one recurrent mixer without MLPs."""
    rows = config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", default=default_tied)
    root.embedding("embeddings", rows, width)
    root.final_norm("norm_f", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)
    positions = config.integer("max_position_embeddings", default=0, minimum=0)
    if not positions:
        config.assume("the config states no longest context; a recurrent state has none")
    return assemble(
        config,
        model_id,
        root,
        default_class=default_class,
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(index=index, token_mixers=(mixer,), channel_mixer=None)
            for index in range(config.num_layers())
        ),
    )
