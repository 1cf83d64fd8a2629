"""DeepSeek-V3, R1, Kimi-K2 and Moonlight: latent attention and sigmoid-routed experts (transformers
models/deepseek_v3/modeling_deepseek_v3.py; the draft block as in the model's README_WEIGHTS.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.mixers import LatentAttention, MixtureOfExperts, SparseIndexer
from vramledger.models.mla import indexer_block, latent_block, latent_from_config
from vramledger.models.model import Model
from vramledger.models.moe import (
    DEEPSEEK_NAMES,
    Draft,
    MoeNames,
    mixture_from_config,
    moe_decoder,
    sparse_layers,
)
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    return latent_moe(config, model_id, default_class="DeepseekV3ForCausalLM", default_dense=3)


def latent_moe(
    config: Config,
    model_id: str,
    *,
    default_class: str,
    default_dense: int,
    names: MoeNames = DEEPSEEK_NAMES,
    default_positions: int = 4096,
    draft_copies: bool = True,
    indexers: Sequence[SparseIndexer] = (),
    experts: Callable[[Place, MixtureOfExperts, int], None] | None = None,
) -> Model:
    """A decoder of latent attention and experts; `indexers` has one entry a layer and one for the draft block.

    `experts` lists a mixture of some width that is not stored expert by expert. `draft_copies` where the draft block is stored with its own embedding and head. A layer whose indexer
    keeps no keys has none of its tensors.
    """
    width = config.integer("hidden_size")
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=default_positions)
    plain = latent_from_config(config)
    every = [latent_from_config(config, indexer) for indexer in indexers] or [plain] * (count + 1)
    drafts = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    bias = config.flag("attention_bias", default=False)
    moe = mixture_from_config(config, shared="n_shared_experts")

    def attend(place: Place) -> None:
        latent_block(place, plain, width=width, bias=bias)
        _indexers(place, every, width)

    return moe_decoder(
        config,
        model_id,
        default_class=default_class,
        width=width,
        mixers=every[:count],
        moe=moe,
        experts=None if experts is None else lambda place: experts(place, moe, width),
        attend=attend,
        names=names,
        sparse=sparse_layers(config, count, default_dense=default_dense),
        dense_inner=config.integer("intermediate_size"),
        positions=positions,
        rope=(rope_from_config(config, plain.rope_dim, max_positions=positions, rotary=plain.rope_dim),),
        draft=Draft(count=drafts, mixer=every[count], copies=draft_copies),
    )


def _indexers(place: Place, mixers: Sequence[LatentAttention], width: int) -> None:
    """Indexer tensors in those of the place's layers that run one; draft layers use the last entry."""
    last = len(mixers) - 1
    scoring = [mixers[min(index, last)] for index in place.layers]
    own = tuple(
        index
        for index, mixer in zip(place.layers, scoring, strict=True)
        if mixer.indexer is not None and mixer.indexer.keeps_keys
    )
    first = next((mixer for mixer in scoring if mixer.indexer is not None), None)
    if own and first is not None and first.indexer is not None:
        indexer_block(place.at(place.prefix, own), first.indexer, width=width, q_lora_rank=first.q_lora_rank)
