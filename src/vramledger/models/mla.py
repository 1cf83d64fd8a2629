"""Multi-head latent attention as configs state it, with and without the sparse indexer."""

from __future__ import annotations

from vramledger.models.blocks import Place, latent_attention
from vramledger.models.config import Config
from vramledger.models.mixers import LatentAttention, SparseIndexer
from vramledger.models.tensors import Role, hidden, latent


def latent_from_config(config: Config, indexer: SparseIndexer | None = None) -> LatentAttention:
    """The latent attention of a DeepSeek-style config. A null q_lora_rank means uncompressed queries.

    Raises ConfigError for a missing width; a file without the key q_lora_rank is refused, since its class
    default differs from null.
    """
    present = config.keys()
    if "q_lora_rank" not in present:
        raise config.fail("q_lora_rank", "is missing; null would mean uncompressed queries")
    return LatentAttention(
        q_heads=config.integer("num_attention_heads"),
        q_lora_rank=config.optional_int("q_lora_rank") or 0,
        kv_lora_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.integer("v_head_dim"),
        indexer=indexer,
    )


def latent_block(
    place: Place, mixer: LatentAttention, *, width: int, bias: bool = False, name: str = "self_attn"
) -> None:
    """The projections of `mixer`; its indexer is listed apart by `indexer_block`."""
    latent_attention(
        place,
        name,
        width=width,
        heads=mixer.q_heads,
        q_lora_rank=mixer.q_lora_rank,
        kv_lora_rank=mixer.kv_lora_rank,
        nope_dim=mixer.nope_dim,
        rope_dim=mixer.rope_dim,
        v_head_dim=mixer.v_head_dim,
        bias=bias,
    )


def indexer_from_config(config: Config, *, keeps_keys: bool = True) -> SparseIndexer:
    return SparseIndexer(
        heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk"),
        keeps_keys=keeps_keys,
    )


def indexer_block(place: Place, indexer: SparseIndexer, *, width: int, q_lora_rank: int) -> None:
    """The lightning indexer of DeepSeek-V3.2 (transformers models/deepseek_v32). Every rank keeps it whole;
    published FP8 checkpoints leave `weights_proj` unquantised."""
    name = "self_attn.indexer"
    place.linear(f"{name}.wq_b", Role.INDEXER, latent(indexer.heads * indexer.head_dim), latent(q_lora_rank))
    place.linear(f"{name}.wk", Role.INDEXER, latent(indexer.head_dim), hidden(width))
    place.norm(f"{name}.k_norm", indexer.head_dim, bias=True)
    place.linear(
        f"{name}.weights_proj", Role.INDEXER, latent(indexer.heads), hidden(width), quantizable=False
    )
