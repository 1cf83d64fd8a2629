"""Jamba: Mamba layers, an attention layer every few, experts every other (transformers
models/jamba/modeling_jamba.py). There are no positions."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, every_nth, gated_mlp, routed_experts, router
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import assemble, full_attention, heads_from_config
from vramledger.models.mixers import DenseMlp, Layer, Mamba1, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.models.recurrent import dt_rank_from, mamba1


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    rows = config.integer("vocab_size", default=65536)
    inner = config.integer("intermediate_size", default=14336)
    positions = config.integer("max_position_embeddings", default=262144)
    tied = config.flag("tie_word_embeddings", default=False)
    experts = config.integer("num_experts", default=16)
    attended = _periodic(config, "attn_layer", count, period=8, offset=4)
    mixed = _periodic(config, "expert_layer", count, period=2, offset=1) if experts > 1 else ()
    recurrent = Mamba1(
        inner=config.integer("mamba_expand", default=2, maximum=1024) * heads.width,
        state=config.integer("mamba_d_state", default=16),
        conv_kernel=config.integer("mamba_d_conv", default=4, maximum=4096),
    )

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, heads.width)
    layer = root.at("model.layers.{layer}.", range(count))
    mamba1(
        layer.at(layer.prefix, (index for index in range(count) if index not in attended)),
        "mamba",
        recurrent,
        width=heads.width,
        dt_rank=dt_rank_from(config, "mamba_dt_rank", heads.width),
        bias=config.flag("mamba_proj_bias", default=False),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        inner_norms=True,
    )
    attention(
        layer.at(layer.prefix, attended),
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
    )
    dense = layer.at(layer.prefix, (index for index in range(count) if index not in mixed))
    gated_mlp(dense, "feed_forward", width=heads.width, inner=inner)
    sparse = layer.at(layer.prefix, mixed)
    router(sparse, "feed_forward.router", width=heads.width, count=experts)
    routed_experts(sparse, "feed_forward.experts", width=heads.width, inner=inner, count=experts)
    layer.norm("input_layernorm", heads.width)
    layer.norm("pre_ff_layernorm", heads.width)
    root.final_norm("final_layernorm", heads.width)
    if not tied:
        root.at("").lm_head("lm_head", rows, heads.width)

    dense_mlp = DenseMlp(intermediate=inner, gated=True)
    mixture = (
        MixtureOfExperts(
            num_experts=experts,
            top_k=config.integer("num_experts_per_tok", default=2, maximum=experts),
            intermediate=inner,
        )
        if mixed
        else dense_mlp
    )
    return assemble(
        config,
        model_id,
        root,
        default_class="JambaForCausalLM",
        width=heads.width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(full_attention(heads) if index in attended else recurrent,),
                channel_mixer=mixture if index in mixed else dense_mlp,
            )
            for index in range(count)
        ),
    )


def _periodic(config: Config, name: str, count: int, *, period: int, offset: int) -> tuple[int, ...]:
    """Layers with index % {name}_period == {name}_offset."""
    step = config.integer(f"{name}_period", default=period, maximum=MAX_LAYERS)
    start = config.integer(f"{name}_offset", default=offset, minimum=0, maximum=step - 1)
    return every_nth(count, step, start)
