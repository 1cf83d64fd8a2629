"""Qwen1.5-MoE and Qwen2 mixtures (transformers models/qwen2_moe): a gated shared expert beside the routed ones."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models.blocks import Place
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import Heads, full_attention, heads_from_config, windowed_mixers
from vramledger.models.mixers import TokenMixer
from vramledger.models.model import Model
from vramledger.models.moe import MoeNames, attends, mixture_from_config, moe_decoder
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, hidden, whole


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=16)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=32768)
    bias = config.flag("qkv_bias", default=True)
    shared = config.integer("shared_expert_intermediate_size")

    def shared_gate(place: Place) -> None:
        place.tensor("mlp.shared_expert_gate.weight", Role.ROUTER, whole(1), hidden(heads.width))

    return moe_decoder(
        config,
        model_id,
        default_class="Qwen2MoeForCausalLM",
        width=heads.width,
        mixers=_mixers(config, count, heads),
        moe=replace(mixture_from_config(config, count=("num_experts",)), shared_intermediate=shared),
        attend=attends(heads, bias=bias),
        names=MoeNames(shared="shared_expert"),
        sparse=sparse_by_step(config, count),
        dense_inner=config.integer("intermediate_size"),
        extra=shared_gate,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def sparse_by_step(config: Config, count: int) -> tuple[int, ...]:
    """Layers with experts: every `decoder_sparse_step`-th but those of `mlp_only_layers`."""
    step = config.integer("decoder_sparse_step", default=1)
    dense = set(config.integers("mlp_only_layers", maximum=MAX_LAYERS))
    return tuple(index for index in range(count) if (index + 1) % step == 0 and index not in dense)


def _mixers(config: Config, count: int, heads: Heads) -> tuple[TokenMixer, ...]:
    """Windows only where `use_sliding_window`; the class then windows every even index below
    `max_window_layers`."""
    if not config.flag("use_sliding_window", default=False):
        return (full_attention(heads),) * count
    config = config.with_defaults("Qwen2MoeConfig", sliding_window=4096)
    limit = config.integer("max_window_layers", default=28, minimum=0)
    return windowed_mixers(config, heads, count, lambda index: index % 2 == 0 and index < limit)
