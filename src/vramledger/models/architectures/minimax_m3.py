"""MiniMax-M3's language model (transformers models/minimax_m3_vl; checkpoint names as its entry in
conversion_mapping.py reverses): block-sparse attention picked by an indexer, shared and routed experts.

The published checkpoint holds no MTP modules, although its config counts them.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models.architectures.minimax_m2 import NAMES
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.mixers import IndexedAttention, SparseIndexer, TokenMixer
from vramledger.models.model import Model
from vramledger.models.moe import attends, mixture_from_config, moe_decoder, numbers, sparse_layers
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, hidden, latent


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=4)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=524288)
    rotary = config.integer("rotary_dim", default=64, maximum=heads.head_dim)
    shared = config.integer("shared_intermediate_size", default=3072, minimum=0)
    experts = mixture_from_config(config, count=("num_local_experts",), inner=("intermediate_size",))
    if config.texts("architectures"):
        config.assume("the published checkpoint also holds a vision tower, which this text config leaves out")

    sparse = config.optional_sub("sparse_attention_config")
    indexer = None if sparse is None else _indexer(sparse)
    scored = frozenset(
        index
        for index, flag in enumerate(
            () if sparse is None else numbers(sparse, "sparse_attention_freq", count)
        )
        if flag
    )
    full = full_attention(heads)
    mixers: list[TokenMixer] = [full] * count
    if indexer is not None:
        indexed = IndexedAttention(
            q_heads=full.q_heads,
            kv_heads=full.kv_heads,
            head_dim=full.head_dim,
            v_head_dim=full.v_head_dim,
            indexer=indexer,
        )
        mixers = [indexed if index in scored else full for index in range(count)]

    def attend(place: Place) -> None:
        attends(heads, qk_norm=True)(place)
        if indexer is not None:
            some = place.at(place.prefix, (index for index in place.layers if index in scored))
            _indexer_tensors(some, indexer, heads.width)

    return moe_decoder(
        config,
        model_id,
        default_class="MiniMaxM3ForCausalLM",
        width=heads.width,
        mixers=mixers,
        moe=replace(experts, shared_intermediate=shared),
        attend=attend,
        names=NAMES,
        sparse=sparse_layers(config, count),
        dense_inner=config.integer("dense_intermediate_size", default=12288),
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions, rotary=rotary),),
    )


def _indexer(config: Config) -> SparseIndexer:
    """The indexer of `sparse_attention_config`; it selects whole blocks, given here in tokens."""
    blocks = config.integer("sparse_topk_blocks", default=16, maximum=65536)
    return SparseIndexer(
        heads=config.integer("sparse_num_index_heads", default=4),
        head_dim=config.integer("sparse_index_dim", default=128),
        top_k=blocks * config.integer("sparse_block_size", default=128, maximum=65536),
    )


def _indexer_tensors(place: Place, indexer: SparseIndexer, width: int) -> None:
    queries = latent(indexer.heads * indexer.head_dim)
    place.linear("self_attn.index_q_proj", Role.INDEXER, queries, hidden(width))
    place.linear("self_attn.index_k_proj", Role.INDEXER, latent(indexer.head_dim), hidden(width))
    place.norm("self_attn.index_q_norm", indexer.head_dim)
    place.norm("self_attn.index_k_norm", indexer.head_dim)
