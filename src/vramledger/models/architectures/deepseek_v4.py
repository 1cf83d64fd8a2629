"""DeepSeek-V4 (transformers models/deepseek_v4; names and element types of the published checkpoint).

Every layer keeps a window of single-vector KV; most also keep a compressed history, one state for every 4 tokens
(picked by an indexer) or for every 128. Hyper-connections carry `hc_mult` residual streams. The Base release also
stores an embedding and a head in its draft layer, which its config does not tell; they are not listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.mixers import CompressedAttention, Layer, SparseIndexer
from vramledger.models.mla import indexer_from_config
from vramledger.models.model import Model, Rope
from vramledger.models.moe import W123, MoeNames, kinds, mixture, mixture_from_config, numbers
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Axis, Component, Role, Stage, hidden, latent, q_heads, vocab, whole

RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
NAMES = MoeNames(block="ffn", parts=W123, shared_parts=W123)
INDEXED = RATIOS["compressed_sparse_attention"]
"""States of this ratio overlap (each sees two windows of tokens) and are picked by an indexer."""


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size")
    count = config.num_layers()
    rows = config.integer("vocab_size")
    positions = config.integer("max_position_embeddings", default=1048576)
    tied = config.flag("tie_word_embeddings", default=False)
    drafts = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    moe = mixture_from_config(config, shared="n_shared_experts", default_shared=1)
    ratios = _ratios(config, count)
    mixers = {ratio: _mixer(config, ratio) for ratio in {*ratios, 0}}
    body = _Body(config, width, mixers[0])
    hashed = _hash_layers(config, count)

    root = Place()
    root.embedding("embed", rows, width)
    layers = root.at("layers.{layer}.", range(count))
    body.layer(layers)
    for ratio, mixer in mixers.items():
        some = root.at(layers.prefix, (i for i in range(count) if ratios[i] == ratio))
        body.compressor(some, mixer)
    mixture(layers, moe, NAMES, width=width)
    routed = root.at(layers.prefix, (i for i in range(count) if i not in hashed))
    _correction_bias(routed, moe.num_experts)
    root.at(layers.prefix, sorted(hashed)).tensor(
        "ffn.gate.tid2eid", Role.ROUTER, vocab(rows), whole(moe.top_k), dtype=DType.I64, parameter=False
    )
    root.final_norm("norm", width)
    body.head_mix(root.at("", stage=Stage.LAST))
    if not tied:
        root.lm_head("head", rows, width)

    draft = root.at("mtp.{block}.", (), copies=drafts, stage=Stage.LAST, component=Component.DRAFT)
    body.layer(draft)
    mixture(draft, moe, NAMES, width=width)
    _correction_bias(draft, moe.num_experts)
    for name in ("enorm", "hnorm", "norm"):
        draft.norm(name, width)
    for name in ("e_proj", "h_proj"):
        draft.linear(name, Role.OTHER, hidden(width), hidden(width))
    body.head_mix(draft)

    return assemble(
        config,
        model_id,
        root,
        default_class="DeepseekV4ForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(index=index, token_mixers=(mixers[ratio],), channel_mixer=moe)
            for index, ratio in enumerate(ratios)
        ),
        rope=_ropes(config, mixers[0].rope_dim, positions, ratios),
        draft_layers=tuple(
            Layer(index=count + step, token_mixers=(mixers[0],), channel_mixer=moe) for step in range(drafts)
        ),
    )


class _Body:
    """Tensors of a layer, from the widths all layers share."""

    def __init__(self, config: Config, width: int, mixer: CompressedAttention) -> None:
        self.width = width
        self.mixer = mixer
        self.q_rank = config.integer("q_lora_rank")
        self.o_rank = config.integer("o_lora_rank")
        self.groups = config.integer("o_groups")
        self.streams = config.integer("hc_mult", default=4, maximum=1024)
        if mixer.q_heads % self.groups:
            raise config.fail(
                "num_attention_heads", f"{mixer.q_heads} does not divide by o_groups {self.groups}"
            )

    def layer(self, place: Place) -> None:
        """Attention without its compressor, norms and the two hyper-connections."""
        width, mixer = self.width, self.mixer
        heads = q_heads(mixer.q_heads, mixer.head_dim)
        groups = q_heads(self.groups, self.o_rank)
        group_width = whole(mixer.q_heads // self.groups * mixer.head_dim)
        place.tensor("attn.attn_sink", Role.SINKS, q_heads(mixer.q_heads, 1), dtype=DType.F32)
        place.linear("attn.wq_a", Role.Q_A, latent(self.q_rank), hidden(width))
        place.norm("attn.q_norm", self.q_rank)
        place.linear("attn.wq_b", Role.Q_B, heads, latent(self.q_rank))
        place.linear("attn.wkv", Role.KV_A, latent(mixer.head_dim), hidden(width))
        place.norm("attn.kv_norm", mixer.head_dim)
        place.linear("attn.wo_a", Role.O, groups, group_width)
        place.linear("attn.wo_b", Role.O, hidden(width), groups)
        place.norm("attn_norm", width)
        place.norm("ffn_norm", width)
        outputs = self.streams * (2 + self.streams)
        for side in ("attn", "ffn"):
            self._mix(place, f"hc_{side}", whole(outputs), whole(3))

    def head_mix(self, place: Place) -> None:
        """What folds the streams into one before the head."""
        self._mix(place, "hc_head", whole(self.streams), whole(1))

    def _mix(self, place: Place, name: str, outputs: Axis, scales: Axis) -> None:
        streams = whole(self.streams * self.width)
        place.tensor(f"{name}_fn", Role.OTHER, outputs, streams, dtype=DType.F32)
        place.tensor(f"{name}_base", Role.OTHER, outputs, dtype=DType.F32)
        place.tensor(f"{name}_scale", Role.OTHER, scales, dtype=DType.F32)

    def compressor(self, place: Place, mixer: CompressedAttention) -> None:
        """What makes the history's states, and the indexer with a compressor of its own; published
        checkpoints quantise only the indexer's query projection."""
        if not mixer.compress_ratio:
            return
        self._pool(place, "attn.compressor", mixer, mixer.head_dim)
        indexer = mixer.indexer
        if indexer is None:
            return
        queries = latent(indexer.heads * indexer.head_dim)
        place.linear("attn.indexer.wq_b", Role.INDEXER, queries, latent(self.q_rank))
        weights = "attn.indexer.weights_proj"
        place.linear(weights, Role.INDEXER, latent(indexer.heads), hidden(self.width), quantizable=False)
        self._pool(place, "attn.indexer.compressor", mixer, indexer.head_dim)

    def _pool(self, place: Place, name: str, mixer: CompressedAttention, dim: int) -> None:
        series = 2 * dim if mixer.compress_ratio == INDEXED else dim
        place.tensor(f"{name}.ape", Role.INDEXER, whole(mixer.compress_ratio), whole(series), dtype=DType.F32)
        for part in ("wkv", "wgate"):
            place.linear(
                f"{name}.{part}", Role.INDEXER, latent(series), hidden(self.width), quantizable=False
            )
        place.norm(f"{name}.norm", dim)


def _mixer(config: Config, ratio: int) -> CompressedAttention:
    indexer: SparseIndexer | None = indexer_from_config(config) if ratio == INDEXED else None
    head_dim = config.integer("head_dim")
    return CompressedAttention(
        q_heads=config.integer("num_attention_heads"),
        head_dim=head_dim,
        rope_dim=config.integer("qk_rope_head_dim", default=64, maximum=head_dim),
        window=config.integer("sliding_window"),
        compress_ratio=ratio,
        indexer=indexer,
    )


def _correction_bias(place: Place, count: int) -> None:
    place.tensor("ffn.gate.bias", Role.ROUTER, whole(count), dtype=DType.F32, parameter=False)


def _ratios(config: Config, count: int) -> tuple[int, ...]:
    """Tokens a state for each layer: `compress_ratios` (the draft layer's come last), else `layer_types`.

    The class has a default schedule, but published models differ from it, so one of the two is needed.
    """
    stated = numbers(config, "compress_ratios", count)
    if not stated:
        stated = tuple(RATIOS[kind] for kind in kinds(config, "layer_types", count, tuple(RATIOS)))
    if not stated:
        raise config.fail("compress_ratios (or layer_types)", "is missing")
    for ratio in stated:
        if ratio not in RATIOS.values():
            raise config.fail("compress_ratios", f"holds {ratio}, not one of 0, 4, 128")
    return stated


def _hash_layers(config: Config, count: int) -> frozenset[int]:
    """Layers that route by a table of the token id instead of by score."""
    types = kinds(config, "mlp_layer_types", count, ("hash_moe", "moe"))
    if types:
        return frozenset(index for index, kind in enumerate(types) if kind == "hash_moe")
    return frozenset(range(min(count, config.integer("num_hash_layers", default=3, minimum=0))))


def _ropes(config: Config, rope_dim: int, positions: int, ratios: Sequence[int]) -> tuple[Rope, ...]:
    """Layers with a history rotate by the scaled table, layers without by a plain one."""
    scaled = rope_from_config(
        config, rope_dim, max_positions=positions, rotary=rope_dim, layer_type="compress"
    )
    plain = Rope(rotary_dim=rope_dim, max_positions=positions)
    tables = [plain] if 0 in ratios else []
    return (*tables, scaled) if any(ratios) else tuple(tables)
