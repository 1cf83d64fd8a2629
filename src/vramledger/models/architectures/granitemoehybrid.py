"""Granite 4: Mamba-2 or attention, a shared MLP and (in most sizes) routed experts (transformers
models/granitemoehybrid/modeling_granitemoehybrid.py)."""

from __future__ import annotations

from vramledger.models.blocks import SHARED, Place, attention, fused_experts, layers_of, router
from vramledger.models.config import Config
from vramledger.models.decoder import assemble, full_attention, heads_from_config
from vramledger.models.hybrid import layer_types
from vramledger.models.mixers import ChannelMixer, DenseMlp, Layer, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.models.recurrent import mamba2, mamba2_from_config
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, gate_up, hidden, intermediate


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    rows = config.integer("vocab_size")
    positions = config.integer("max_position_embeddings", default=2048)
    tied = config.flag("tie_word_embeddings", default=False)
    bias = config.flag("attention_bias", default=False)
    types = layer_types(config, count, allowed=("mamba", "attention"), default="mamba")
    experts = config.integer("num_local_experts", default=8, minimum=0)
    shared = config.integer("shared_intermediate_size", default=1024)

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, heads.width)
    layer = root.at("model.layers.{layer}.", range(count))
    recurrent = None
    if "mamba" in types:
        recurrent = mamba2_from_config(config, heads.width)
        mamba2(
            layer.at(layer.prefix, layers_of(types, "mamba")),
            "mamba",
            recurrent,
            width=heads.width,
            bias=config.flag("mamba_proj_bias", default=False),
            conv_bias=config.flag("mamba_conv_bias", default=True),
        )
    attention(
        layer.at(layer.prefix, layers_of(types, "attention")),
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=bias,
        o_bias=bias,
    )
    channel: ChannelMixer
    if experts:
        inner = config.integer("intermediate_size")
        router(layer, "block_sparse_moe.router.layer", width=heads.width, count=experts)
        fused_experts(
            layer,
            "block_sparse_moe",
            width=heads.width,
            inner=inner,
            count=experts,
            names=("input_linear.weight", "output_linear.weight"),
        )
        channel = MixtureOfExperts(
            num_experts=experts,
            top_k=config.integer("num_experts_per_tok", default=2, maximum=experts),
            intermediate=inner,
            shared_intermediate=shared,
        )
        roles = (Role.SHARED_GATE_UP, SHARED[2])
    else:
        channel = DenseMlp(intermediate=shared, gated=True)
        roles = (Role.GATE_UP, Role.DOWN)
    layer.linear("shared_mlp.input_linear", roles[0], gate_up(shared), hidden(heads.width))
    layer.linear("shared_mlp.output_linear", roles[1], hidden(heads.width), intermediate(shared))
    layer.norm("input_layernorm", heads.width)
    layer.norm("post_attention_layernorm", heads.width)
    root.final_norm("norm", heads.width)
    if not tied:
        root.at("").lm_head("lm_head", rows, heads.width)

    rotates = config.text("position_embedding_type", default="nope") == "rope"
    return assemble(
        config,
        model_id,
        root,
        default_class="GraniteMoeHybridForCausalLM",
        width=heads.width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(recurrent if kind == "mamba" and recurrent else full_attention(heads),),
                channel_mixer=channel,
            )
            for index, kind in enumerate(types)
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),) if rotates else (),
    )
