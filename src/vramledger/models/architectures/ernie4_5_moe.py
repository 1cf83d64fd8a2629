"""ERNIE 4.5 text mixtures (transformers models/ernie4_5_moe; draft block as in the published checkpoints)."""

from __future__ import annotations

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import Place, gated_mlp
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.mixers import DenseMlp, Layer
from vramledger.models.model import Model
from vramledger.models.moe import MoeNames, attends, mixture_from_config, moe_decoder, with_draft
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, Stage, hidden, whole

NAMES = MoeNames(router_dtype=DType.F32)


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=4)
    width, inner = heads.width, config.integer("intermediate_size")
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=131072)
    drafts = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    if config.flag("use_bias", default=False):
        raise config.fail("use_bias", "is true; no published mixture has biases and their layout is unknown")
    moe = mixture_from_config(
        config,
        count=("moe_num_experts",),
        top_k=("moe_k", "num_experts_per_tok"),
        shared="moe_num_shared_experts",
        default_shared=2,
    )
    mixer, attend = full_attention(heads), attends(heads)

    def correction_bias(place: Place) -> None:
        """A parameter here, not a buffer as elsewhere, with a leading axis of one."""
        name = "mlp.moe_statics.e_score_correction_bias"
        place.tensor(name, Role.ROUTER, whole(1), whole(moe.num_experts), dtype=DType.F32)

    model = moe_decoder(
        config,
        model_id,
        default_class="Ernie4_5_MoeForCausalLM",
        width=width,
        mixers=(mixer,) * count,
        moe=moe,
        attend=attend,
        names=NAMES,
        sparse=_sparse(config, count),
        dense_inner=inner,
        extra=correction_bias,
        positions=positions,
        tied=True,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
    if not drafts:
        return model

    root = Place(prefix="model.", copies=drafts, stage=Stage.LAST, component=Component.DRAFT)
    root.norm("mtp_emb_norm.{block}", width)
    root.norm("mtp_hidden_norm.{block}", width)
    root.linear("mtp_linear_proj.{block}", Role.OTHER, hidden(width), hidden(2 * width))
    block = root.at("model.mtp_block.{block}.")
    attend(block)
    gated_mlp(block, "mlp", width=width, inner=inner)
    block.norm("input_layernorm", width)
    block.norm("post_attention_layernorm", width)
    dense = DenseMlp(intermediate=inner, gated=True)
    layers = (Layer(index=count + step, token_mixers=(mixer,), channel_mixer=dense) for step in range(drafts))
    return with_draft(model, root, tuple(layers))


def _sparse(config: Config, count: int) -> tuple[int, ...]:
    start = config.integer("moe_layer_start_index", default=1, minimum=0, maximum=MAX_LAYERS)
    end = config.integer("moe_layer_end_index", default=-1, minimum=-1, maximum=MAX_LAYERS)
    step = config.integer("moe_layer_interval", default=1)
    last = count - 1 if end < 0 else end
    return tuple(index for index in range(count) if start <= index <= last and (index + 1) % step == 0)
