"""MiniMax-Text-01 and M1 (transformers models/minimax): lightning attention in most layers, softmax attention in
every eighth, Mixtral's experts in all."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, heads_from_config, windowed_mixers
from vramledger.models.mixers import LinearAttention, TokenMixer
from vramledger.models.model import Model
from vramledger.models.moe import (
    MIXTRAL_NAMES,
    attends,
    kinds,
    mixture_from_config,
    moe_decoder,
    numbers,
    published_bf16,
)
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, hidden, ssm_heads

LINEAR = "linear_attention"


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=131072)
    if config.integer("shared_intermediate_size", default=0, minimum=0):
        raise config.fail("shared_intermediate_size", "is set; no published model has a shared MLP")
    rotary = config.optional_int("rotary_dim", minimum=1, maximum=heads.head_dim)
    types = _types(config, count)
    (full,) = windowed_mixers(config.replacing(layer_types=None), heads, 1, lambda index: True)
    linear: TokenMixer = LinearAttention(heads=heads.heads, head_dim=heads.head_dim)

    def attend(place: Place) -> None:
        recurrent = place.at(place.prefix, (i for i in place.layers if types[i] == LINEAR))
        lightning(recurrent, heads)
        attends(heads)(place.at(place.prefix, (i for i in place.layers if types[i] != LINEAR)))

    return moe_decoder(
        config,
        model_id,
        default_class="MiniMaxForCausalLM",
        width=heads.width,
        mixers=[linear if kind == LINEAR else full for kind in types],
        moe=mixture_from_config(config, count=("num_local_experts",), inner=("intermediate_size",)),
        attend=attend,
        names=MIXTRAL_NAMES,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions, rotary=rotary),),
        default_dtype=published_bf16(config),
    )


def lightning(place: Place, heads: Heads) -> None:
    """Lightning attention: q, k and v stacked head by head, an output gate, one norm over all heads."""
    channels = ssm_heads(heads.heads, heads.head_dim)
    stacked = ssm_heads(heads.heads, 3 * heads.head_dim)
    place.linear("self_attn.qkv_proj", Role.SSM_IN, stacked, hidden(heads.width))
    place.linear("self_attn.output_gate", Role.SSM_IN, channels, hidden(heads.width))
    place.linear("self_attn.out_proj", Role.SSM_OUT, hidden(heads.width), channels)
    place.norm("self_attn.norm", channels)


def _types(config: Config, count: int) -> tuple[str, ...]:
    """`layer_types`, else `attn_type_list` (0: linear), else the class's own alternation."""
    stated = kinds(config, "layer_types", count, ("full_attention", LINEAR))
    if stated:
        return stated
    flags = numbers(config, "attn_type_list", count)
    if not flags:
        config.assume("no layer_types or attn_type_list: the class's alternation of full and linear taken")
        flags = tuple(1 - index % 2 for index in range(count))
    return tuple("full_attention" if flag else LINEAR for flag in flags)
