"""K-EXAONE (transformers models/exaone_moe; draft block as vLLM's model_executor/models/exaone_moe_mtp.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.mixers import DenseMlp, Layer
from vramledger.models.model import Model
from vramledger.models.moe import (
    MoeNames,
    attends,
    kinds,
    mixture_from_config,
    moe_decoder,
    sparse_layers,
    with_draft,
)
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, Stage, hidden

NAMES = MoeNames(bias="e_score_correction_bias")


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    inner = config.integer("intermediate_size")
    positions = config.integer("max_position_embeddings", default=2048)
    drafts = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    every = config.integer("sliding_window_pattern", default=4) if "layer_types" not in config else 1
    mixers = windowed_mixers(config, heads, count, lambda index: (index + 1) % every != 0)
    attend = attends(heads, qk_norm=True)

    model = moe_decoder(
        config,
        model_id,
        default_class="ExaoneMoeForCausalLM",
        width=heads.width,
        mixers=mixers,
        moe=mixture_from_config(
            config, count=("num_experts",), shared="num_shared_experts", default_shared=1
        ),
        attend=attend,
        names=NAMES,
        sparse=sparse_layers(config, count, default_dense=1),
        dense_inner=inner,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
    if not drafts:
        return model

    root = Place(prefix="mtp.", stage=Stage.LAST, component=Component.DRAFT)
    root.linear("fc", Role.OTHER, hidden(heads.width), hidden(2 * heads.width))
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        root.norm(name, heads.width)
    layer = root.at("mtp.layers.{block}.", copies=drafts)
    attend(layer)
    gated_mlp(layer, "mlp", width=heads.width, inner=inner)
    layer.norm("input_layernorm", heads.width)
    layer.norm("post_attention_layernorm", heads.width)
    types = kinds(config, "mtp_layer_types", drafts, ("full_attention", "sliding_attention"))
    own = (
        windowed_mixers(config.replacing(layer_types=types), heads, drafts, lambda index: False)
        if types
        else mixers[:1] * drafts
    )
    dense = DenseMlp(intermediate=inner, gated=True)
    return with_draft(
        model,
        root,
        tuple(
            Layer(index=count + step, token_mixers=(mixer,), channel_mixer=dense)
            for step, mixer in enumerate(own)
        ),
    )
