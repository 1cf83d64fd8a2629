"""LongCat-Flash (transformers models/longcat_flash): two attention blocks and two dense MLPs a layer around one
mixture, whose zero experts pass their input on and hold no weights.

The checkpoint has a row of the router for each zero expert, but no matrices for them; Transformers' class
allocates gate and up for them too and so counts more. The draft layer is described in vLLM's
model_executor/models/longcat_flash_mtp.py.
"""

from __future__ import annotations

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import Place, gated_mlp, routed_experts
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.mixers import DenseMlp, LatentAttention, Layer, MixtureOfExperts
from vramledger.models.mla import latent_block, latent_from_config
from vramledger.models.model import Model
from vramledger.models.moe import mixture_from_config
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, Stage, hidden, whole

HALVES = (0, 1)


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size")
    count = config.num_layers("num_layers")
    rows = config.integer("vocab_size")
    inner = config.integer("ffn_hidden_size", "intermediate_size")
    positions = config.integer("max_position_embeddings", default=131072)
    zero = config.integer("zero_expert_num", default=256, minimum=0, maximum=65536)
    bias = config.flag("attention_bias", default=False)
    tied = config.flag("tie_word_embeddings", default=False)
    mixer = latent_from_config(config)
    experts = mixture_from_config(config, top_k=("moe_topk",), inner=("expert_ffn_hidden_size",))
    moe = MixtureOfExperts(
        num_experts=experts.num_experts,
        top_k=experts.top_k,
        intermediate=experts.intermediate,
        dense_intermediate=inner,
    )
    if zero:
        config.assume(
            f"{zero} zero experts hold no weights; a token sent to them runs fewer than {moe.top_k} experts, "
            "so the active count is an upper bound"
        )

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    layer = root.at("model.layers.{layer}.", range(count))
    for half in HALVES:
        latent_block(layer, mixer, width=width, bias=bias, name=f"self_attn.{half}")
        gated_mlp(layer, f"mlps.{half}", width=width, inner=inner)
        layer.norm(f"input_layernorm.{half}", width)
        layer.norm(f"post_attention_layernorm.{half}", width)
    choices = whole(moe.num_experts + zero)
    layer.tensor("mlp.router.classifier.weight", Role.ROUTER, choices, hidden(width))
    layer.tensor("mlp.router.e_score_correction_bias", Role.ROUTER, choices, dtype=DType.F32, parameter=False)
    routed_experts(layer, "mlp.experts", width=width, inner=moe.intermediate, count=moe.num_experts)
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)
    _draft(root, mixer, width=width, rows=rows, inner=inner, bias=bias)
    dense = DenseMlp(intermediate=inner, gated=True)

    return assemble(
        config,
        model_id,
        root,
        default_class="LongcatFlashForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(index=index, token_mixers=(mixer,) * len(HALVES), channel_mixer=moe)
            for index in range(count)
        ),
        rope=(rope_from_config(config, mixer.rope_dim, max_positions=positions, rotary=mixer.rope_dim),),
        draft_layers=(Layer(index=count, token_mixers=(mixer,), channel_mixer=dense),),
    )


def _draft(root: Place, mixer: LatentAttention, *, width: int, rows: int, inner: int, bias: bool) -> None:
    """The one draft layer every published checkpoint holds: dense, with its own embedding."""
    outer = root.at("model.mtp.", stage=Stage.LAST, component=Component.DRAFT)
    outer.embedding("embed_tokens", rows, width)
    outer.norm("norm", width)
    layer = outer.at("model.mtp.layers.{block}.", copies=1)
    layer.norm("enorm.m", width)
    layer.norm("hnorm.m", width)
    layer.linear("eh_proj", Role.OTHER, hidden(width), hidden(2 * width))
    layer.norm("input_layernorm", width)
    layer.norm("post_attention_layernorm", width)
    latent_block(layer, mixer, width=width, bias=bias)
    gated_mlp(layer, "transformer_layer.mlp", width=width, inner=inner)
