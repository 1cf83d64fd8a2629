"""Laguna (transformers models/laguna): head counts by layer, gated attention, a rotary table for each kind."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, full_attention, heads_from_config, sliding_attention
from vramledger.models.model import Model, Rope
from vramledger.models.moe import (
    MoeNames,
    attends,
    kinds,
    mixture_from_config,
    moe_decoder,
    numbers,
    sparse_layers,
)
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, hidden, q_heads, whole

KINDS = ("full_attention", "sliding_attention")


def describe(config: Config, model_id: str) -> Model:
    base = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=131072)
    by_layer = numbers(config, "num_attention_heads_per_layer", count) or (base.heads,) * count
    for heads in set(by_layer):
        if heads < 1 or heads % base.kv:
            raise config.fail(
                "num_attention_heads_per_layer",
                f"holds {heads}, which does not divide by num_key_value_heads {base.kv}",
            )
    types = kinds(config, "layer_types", count, KINDS) or (KINDS[0],) * count
    window = config.integer("sliding_window", default=512)
    gating = config.raw("gating")
    per_head = gating is None or gating is True or gating == "per-head"
    shared = config.integer("shared_expert_intermediate_size")
    moe = replace(mixture_from_config(config, count=("num_experts",)), shared_intermediate=shared)

    def attend(place: Place) -> None:
        for heads in sorted(set(by_layer)):
            some = Heads(width=base.width, heads=heads, kv=base.kv, head_dim=base.head_dim)
            part = place.at(place.prefix, (i for i in place.layers if by_layer[i] == heads))
            attends(some, qk_norm=True)(part)
            gate = q_heads(heads, 1 if per_head else base.head_dim)
            part.linear("self_attn.g_proj", Role.Q, gate, hidden(base.width))

    def correction_bias(place: Place) -> None:
        """A parameter here, kept beside the experts."""
        name = "mlp.experts.e_score_correction_bias"
        place.tensor(name, Role.ROUTER, whole(moe.num_experts), dtype=DType.F32)

    layer_heads = [
        Heads(width=base.width, heads=heads, kv=base.kv, head_dim=base.head_dim) for heads in by_layer
    ]
    return moe_decoder(
        config,
        model_id,
        default_class="LagunaForCausalLM",
        width=base.width,
        mixers=tuple(
            full_attention(heads) if kind == KINDS[0] else sliding_attention(heads, window)
            for heads, kind in zip(layer_heads, types, strict=True)
        ),
        moe=moe,
        attend=attend,
        names=MoeNames(shared="shared_expert"),
        sparse=sparse_layers(config, count, default_dense=1),
        dense_inner=config.integer("intermediate_size"),
        extra=correction_bias,
        positions=positions,
        rope=_ropes(config, base.head_dim, positions, types),
    )


def _ropes(config: Config, head_dim: int, positions: int, types: tuple[str, ...]) -> tuple[Rope, ...]:
    """One table for each kind in use; the class rotates half of a head in full layers, all of it in windows."""
    stated = config.optional_sub("rope_parameters")
    tables = []
    for kind, share in zip(KINDS, (2, 1), strict=True):
        if kind not in types:
            continue
        own = stated.optional_sub(kind) if stated is not None else None
        rotary = None if own is not None and "partial_rotary_factor" in own else head_dim // share
        tables.append(
            rope_from_config(config, head_dim, max_positions=positions, rotary=rotary, layer_type=kind)
        )
    return tuple(tables)
