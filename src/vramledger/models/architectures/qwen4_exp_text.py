"""Qwen4-Exp's language model (transformers models/qwen4_exp): gated delta rule in most layers, indexed attention
in every fourth, experts in all, hyper-connections instead of plain residuals, hashed n-gram embeddings in a few.

The checkpoint stores the n-gram table in `split_ngram_parts` shards, listed here as the one table they form. Its
MTP block (`mtp.`) is not described.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import (
    SHARED,
    Place,
    attention,
    fused_experts,
    gated_mlp,
    routed_experts,
    router,
)
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, assemble, full_attention, heads_from_config
from vramledger.models.mixers import (
    IndexedAttention,
    Layer,
    MixtureOfExperts,
    ShortConvolution,
    SparseIndexer,
    TokenMixer,
)
from vramledger.models.model import Model
from vramledger.models.moe import kinds, mixture_from_config
from vramledger.models.ngram import HashedNgrams, ngrams_from_config
from vramledger.models.recurrent import conv1d, gated_delta_from_config, gated_delta_net
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, Stage, hidden, latent, ssm_heads, vocab, whole

LINEAR = "linear_attention"
INDEXED = ("indexed_attention", "qwen_sparse_attention", "full_attention")
"""What files call an indexed layer; Transformers reads the last two as the first."""


def describe(config: Config, model_id: str) -> Model:
    return describe_text(config, model_id, prefix="model.", fused=True)


def describe_text(config: Config, model_id: str, *, prefix: str, fused: bool) -> Model:
    """The text part under `prefix`; `fused` says that experts are stored as two 3-D tensors."""
    heads = heads_from_config(config)
    width = heads.width
    count = config.num_layers()
    rows = config.integer("vocab_size")
    positions = config.integer("max_position_embeddings", default=32768)
    tied = config.flag("tie_word_embeddings", default=False)
    shared = config.integer("shared_expert_intermediate_size", default=512)
    streams = config.integer("hc_count", default=4, minimum=2, maximum=1024)
    rank = config.integer("hc_lowrank", default=320)
    moe = replace(mixture_from_config(config, count=("num_experts",)), shared_intermediate=shared)
    types = _types(config, count)
    delta, indexed = gated_delta_from_config(config), _indexed(config, heads)
    ngrams = ngrams_from_config(config, width=width, layers=count)
    if config.integer("mtp_num_hidden_layers", default=0, minimum=0):
        config.assume("the checkpoint's MTP block has no description here and is left out")

    root = Place(prefix=prefix)
    root.embedding("embed_tokens", rows, width)
    layer = root.at(prefix + "layers.{layer}.", range(count))
    gated_delta_net(_where(layer, types, LINEAR), "linear_attn", delta, width=width, fused=False)
    _attention(_where(layer, types, *INDEXED), heads, indexed.indexer)
    _experts(layer, moe, width, fused=fused)
    for side in ("attn", "mlp"):
        _residual(layer, f"{side}_hyper_connection", width, streams, rank, inject=True)
    for ngram in ngrams:
        _ngram_tensors(root.at(layer.prefix, (ngram.layer,)), ngram, width, streams)
    _residual(root.at(prefix, stage=Stage.LAST), "hyper_connection_mixer", width, streams, rank, inject=False)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    extra = {ngram.layer: ShortConvolution(channels=streams * width, kernel=ngram.span) for ngram in ngrams}
    mixers: list[TokenMixer] = [delta if kind == LINEAR else indexed for kind in types]
    return assemble(
        config,
        model_id,
        root,
        default_class="Qwen4ExpForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(mixer, extra[index]) if index in extra else (mixer,),
                channel_mixer=moe,
            )
            for index, mixer in enumerate(mixers)
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def _where(place: Place, types: tuple[str, ...], *wanted: str) -> Place:
    return place.at(place.prefix, (index for index, kind in enumerate(types) if kind in wanted))


def _types(config: Config, count: int) -> tuple[str, ...]:
    stated = kinds(config, "layer_types", count, (LINEAR, *INDEXED))
    every = config.integer("full_attention_interval", default=4, maximum=4096)
    return stated or tuple(LINEAR if (index + 1) % every else INDEXED[0] for index in range(count))


def _indexed(config: Config, heads: Heads) -> IndexedAttention:
    """A group of `indexer_compress_ratio` tokens is pooled into one index key."""
    if config.integer("indexer_kv_heads", default=1) != 1:
        raise config.fail("indexer_kv_heads", "must be 1, as the class requires")
    full = full_attention(heads)
    return IndexedAttention(
        q_heads=full.q_heads,
        kv_heads=full.kv_heads,
        head_dim=full.head_dim,
        v_head_dim=full.v_head_dim,
        indexer=SparseIndexer(
            heads=config.integer("indexer_n_heads"),
            head_dim=config.integer("indexer_head_dim"),
            top_k=config.integer("indexer_budget"),
            tokens_per_key=config.integer("indexer_compress_ratio", default=1),
        ),
    )


def _attention(place: Place, heads: Heads, indexer: SparseIndexer) -> None:
    attention(
        place,
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        qk_norm=True,
        output_gate=True,
    )
    both = latent((indexer.heads + 1) * indexer.head_dim)
    place.linear("self_attn.indexer.index_qk_proj", Role.INDEXER, both, hidden(heads.width))
    for norm in ("q_layernorm", "k_layernorm"):
        place.norm(f"self_attn.indexer.{norm}", indexer.head_dim)


def _experts(place: Place, moe: MixtureOfExperts, width: int, *, fused: bool) -> None:
    count, inner = moe.num_experts, moe.intermediate
    router(place, "mlp.gate", width=width, count=count)
    (fused_experts if fused else routed_experts)(place, "mlp.experts", width=width, inner=inner, count=count)
    gated_mlp(place, "mlp.shared_expert", width=width, inner=moe.shared_intermediate, roles=SHARED)
    place.tensor("mlp.shared_expert_gate.weight", Role.ROUTER, whole(1), hidden(width))


def _residual(place: Place, name: str, width: int, streams: int, rank: int, *, inject: bool) -> None:
    """A low-rank mix of the residual streams, and what injects a block's output into each of them."""
    wide = whole(streams * width)
    place.norm(f"{name}.hc_norm", wide)
    place.linear(f"{name}.input_mix_weight_down", Role.OTHER, latent(rank), wide)
    place.linear(f"{name}.input_mix_weight_up", Role.OTHER, wide, latent(rank))
    if inject:
        place.linear(f"{name}.block_inject_weight", Role.OTHER, whole(streams), wide)


def _ngram_tensors(place: Place, ngram: HashedNgrams, width: int, streams: int) -> None:
    wide = whole(streams * width)
    table = "ple.ple_embedding"
    place.tensor(
        f"{table}.ngram_embedding.weight", Role.EMBEDDING, vocab(ngram.rows), whole(ngram.head_width)
    )
    place.linear("ple.key_proj", Role.OTHER, wide, whole(ngram.width))
    place.linear("ple.value_proj", Role.OTHER, hidden(width), whole(ngram.width))
    for norm in ("norm_key", "norm_query", "norm_conv"):
        place.norm(f"ple.{norm}", wide)
    conv1d(place, "ple.conv1d", ssm_heads(streams * width), ngram.kernel, bias=False)
    for name, size in (
        ("layer_multipliers", ngram.size),
        ("ngram_heads_vocab_sizes", ngram.heads),
        ("ngram_heads_offsets", ngram.heads),
    ):
        place.tensor(f"{table}.{name}", Role.OTHER, whole(size), dtype=DType.I64, parameter=False)
