"""Kimi Linear: Kimi Delta Attention with latent attention every fourth layer (the published checkpoint's names;
vLLM model_executor/models/kimi_linear.py). No layer rotates (`mla_use_nope`)."""

from __future__ import annotations

from vramledger.models.blocks import SHARED, Place, gated_mlp, latent_attention, routed_experts, router
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import assemble
from vramledger.models.mixers import (
    ChannelMixer,
    DenseMlp,
    KimiDeltaAttention,
    LatentAttention,
    Layer,
    MixtureOfExperts,
)
from vramledger.models.model import Model
from vramledger.models.recurrent import kimi_delta
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size")
    count = config.num_layers()
    rows = config.integer("vocab_size")
    inner = config.integer("intermediate_size")
    positions = config.integer("max_position_embeddings", "model_max_length")
    tied = config.flag("tie_word_embeddings", default=False)
    delta, linear_layers = _delta(config, count)
    full_layers = tuple(index for index in range(count) if index not in linear_layers)
    mla = LatentAttention(
        q_heads=config.integer("num_attention_heads"),
        q_lora_rank=config.optional_int("q_lora_rank") or 0,
        kv_lora_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.integer("v_head_dim"),
    )
    mixture = _mixture(config)
    sparse_layers = _sparse_layers(config, count) if mixture else ()

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    layer = root.at("model.layers.{layer}.", range(count))
    kimi_delta(layer.at(layer.prefix, linear_layers), "self_attn", delta, width=width)
    latent_attention(
        layer.at(layer.prefix, full_layers),
        "self_attn",
        width=width,
        heads=mla.q_heads,
        q_lora_rank=mla.q_lora_rank,
        kv_lora_rank=mla.kv_lora_rank,
        nope_dim=mla.nope_dim,
        rope_dim=mla.rope_dim,
        v_head_dim=mla.v_head_dim,
    )
    dense = layer.at(layer.prefix, (index for index in range(count) if index not in sparse_layers))
    gated_mlp(dense, "mlp", width=width, inner=inner)
    if mixture:
        _list_experts(layer.at(layer.prefix, sparse_layers), mixture, width)
    layer.norm("input_layernorm", width)
    layer.norm("post_attention_layernorm", width)
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    rotates = not config.flag("mla_use_nope", default=False)
    dense_mlp = DenseMlp(intermediate=inner, gated=True)
    channels: list[ChannelMixer] = [
        mixture if mixture and index in sparse_layers else dense_mlp for index in range(count)
    ]
    return assemble(
        config,
        model_id,
        root,
        default_class="KimiLinearForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(delta if index in linear_layers else mla,),
                channel_mixer=channels[index],
            )
            for index in range(count)
        ),
        rope=(rope_from_config(config, mla.rope_dim, max_positions=positions, rotary=mla.rope_dim),)
        if rotates
        else (),
    )


def _delta(config: Config, count: int) -> tuple[KimiDeltaAttention, tuple[int, ...]]:
    """The mixer and the layers that have it; the config counts layers from one."""
    linear = config.sub("linear_attn_config")
    listed = linear.integers("kda_layers", minimum=1, maximum=MAX_LAYERS)
    if listed and max(listed) > count:
        raise linear.fail("kda_layers", f"names layer {max(listed)} of {count}")
    mixer = KimiDeltaAttention(
        heads=linear.integer("num_heads"),
        head_dim=linear.integer("head_dim"),
        conv_kernel=linear.integer("short_conv_kernel_size", maximum=4096),
    )
    return mixer, tuple(sorted({index - 1 for index in listed}))


def _mixture(config: Config) -> MixtureOfExperts | None:
    experts = config.integer("num_experts", default=0, minimum=0)
    if not experts:
        return None
    inner = config.integer("moe_intermediate_size")
    return MixtureOfExperts(
        num_experts=experts,
        top_k=config.integer("num_experts_per_token", "num_experts_per_tok", maximum=experts),
        intermediate=inner,
        shared_intermediate=inner * config.integer("num_shared_experts", default=0, minimum=0, maximum=1024),
    )


def _sparse_layers(config: Config, count: int) -> tuple[int, ...]:
    first = config.integer("first_k_dense_replace", default=0, minimum=0)
    step = config.integer("moe_layer_freq", default=1, maximum=MAX_LAYERS)
    return tuple(index for index in range(count) if index >= first and index % step == 0)


def _list_experts(place: Place, mixture: MixtureOfExperts, width: int) -> None:
    router(
        place,
        "block_sparse_moe.gate",
        width=width,
        count=mixture.num_experts,
        correction_bias="block_sparse_moe.gate.e_score_correction_bias",
    )
    routed_experts(
        place,
        "block_sparse_moe.experts",
        width=width,
        inner=mixture.intermediate,
        count=mixture.num_experts,
        names=("w1", "w3", "w2"),
    )
    if mixture.shared_intermediate:
        gated_mlp(
            place,
            "block_sparse_moe.shared_experts",
            width=width,
            inner=mixture.shared_intermediate,
            roles=SHARED,
        )
