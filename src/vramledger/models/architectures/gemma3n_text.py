"""Gemma 3n's text model: AltUp, Laurel, per-layer embeddings, layers that share KV
(transformers models/gemma3n/modeling_gemma3n.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, assemble, full_attention, heads_from_config, sliding_attention
from vramledger.models.gemma import kv_sources, layer_types, per_layer_embeddings, shared_kv_attention
from vramledger.models.mixers import DenseMlp, Layer, SharedKvAttention, TokenMixer
from vramledger.models.model import Model
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, hidden, whole

NORMS = ("input", "post_attention", "pre_feedforward", "post_feedforward")


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Gemma3nTextConfig",
        hidden_size=2048,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        num_kv_shared_layers=15,
        max_position_embeddings=32768,
        sliding_window=512,
    )
    heads = heads_from_config(config)
    width = heads.width
    count = config.num_layers(default=35)
    rows = config.integer("vocab_size", default=262400)
    positions = config.integer("max_position_embeddings")
    tied = config.flag("tie_word_embeddings", default=True)
    types = layer_types(config, count, pattern=5)
    sources = kv_sources(config, types, config.integer("num_kv_shared_layers", minimum=0))
    widths = _widths(config, count)

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    shared_kv_attention(
        root,
        range(count),
        sources,
        width=width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=config.flag("attention_bias", default=False),
    )
    for size in sorted(set(widths)):
        place = root.at("model.layers.{layer}.", [index for index in range(count) if widths[index] == size])
        gated_mlp(place, "mlp", width=width, inner=size)
    layer = root.at("model.layers.{layer}.", range(count))
    _alternating_updates(root, layer, config, width)
    rank = config.integer("laurel_rank", default=64)
    layer.linear("laurel.linear_left", Role.OTHER, hidden(rank), hidden(width))
    layer.linear("laurel.linear_right", Role.OTHER, hidden(width), hidden(rank))
    layer.norm("laurel.post_laurel_norm", width)
    for norm in NORMS:
        layer.norm(f"{norm}_layernorm", width)
    per_layer_embeddings(
        root,
        rows=config.integer("vocab_size_per_layer_input", default=262144),
        size=config.integer("hidden_size_per_layer_input", default=256),
        count=count,
        width=width,
    )
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    window = config.integer("sliding_window")
    return assemble(
        config,
        model_id,
        root,
        default_class="Gemma3nForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(_mixer(heads, types[index], sources[index], window),),
                channel_mixer=DenseMlp(intermediate=widths[index], gated=True),
            )
            for index in range(count)
        ),
        rope=tuple(
            rope_from_config(config, heads.head_dim, max_positions=positions, layer_type=kind)
            for kind in ("full_attention", "sliding_attention")
        ),
    )


def _mixer(heads: Heads, kind: str, source: int | None, window: int) -> TokenMixer:
    if source is not None:
        return SharedKvAttention(
            q_heads=heads.heads,
            kv_heads=heads.kv,
            head_dim=heads.head_dim,
            v_head_dim=heads.head_dim,
            source_layer=source,
        )
    return sliding_attention(heads, window) if kind == "sliding_attention" else full_attention(heads)


def _widths(config: Config, count: int) -> tuple[int, ...]:
    """The MLP width of each layer, one number for all or a list."""
    if not isinstance(config.raw("intermediate_size"), list | tuple):
        return (config.integer("intermediate_size", default=16384),) * count
    widths = config.integers("intermediate_size", minimum=1)
    if len(widths) != count:
        raise config.fail("intermediate_size", f"has {len(widths)} entries for {count} layers")
    return widths


def _alternating_updates(root: Place, layer: Place, config: Config, width: int) -> None:
    """AltUp: `altup_num_inputs` residual streams, predicted and corrected in each layer."""
    streams = config.integer("altup_num_inputs", default=4, maximum=256)
    if config.flag("altup_correct_scale", default=True):
        layer.tensor("altup.correct_output_scale", Role.OTHER, hidden(width))
    layer.linear("altup.correction_coefs", Role.OTHER, whole(streams), whole(streams))
    layer.linear("altup.prediction_coefs", Role.OTHER, whole(streams * streams), whole(streams))
    layer.linear("altup.modality_router", Role.OTHER, whole(streams), hidden(width))
    layer.norm("altup.router_norm", width)
    if streams > 1:
        for name in ("altup_projections", "altup_unembed_projections"):
            each = root.at(f"model.{name}.", copies=streams - 1)
            each.linear("{block}", Role.OTHER, hidden(width), hidden(width))
