"""LFM2: short convolutions with a few attention layers (transformers models/lfm2/modeling_lfm2.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, gated_mlp, layers_of
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import Heads, assemble, full_attention, heads_from_config
from vramledger.models.hybrid import FULL, layer_types
from vramledger.models.mixers import ChannelMixer, DenseMlp, Layer, ShortConvolution
from vramledger.models.model import Model
from vramledger.models.recurrent import short_convolution
from vramledger.models.rope import rope_from_config
from vramledger.units import ceil_div

CONV = "conv"
MLP_NAMES = ("w1", "w3", "w2")


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    inner = _adjusted_width(config)
    root = Place(prefix="model.")
    layer = list_mixers(root, config, heads, count)
    gated_mlp(layer, "feed_forward", width=heads.width, inner=inner, names=MLP_NAMES)
    channel = DenseMlp(intermediate=inner, gated=True)
    return finish(config, model_id, root, heads, channels=(channel,) * count, default_class="Lfm2ForCausalLM")


def list_mixers(root: Place, config: Config, heads: Heads, count: int) -> Place:
    """Embedding, token mixers and norms of every layer; returns the place of the layers."""
    types = _types(config, count)
    root.embedding("embed_tokens", config.integer("vocab_size", default=65536), heads.width)
    layer = root.at("model.layers.{layer}.", range(count))
    short_convolution(
        layer.at(layer.prefix, layers_of(types, CONV)),
        "conv",
        width=heads.width,
        kernel=config.integer("conv_L_cache", default=3, maximum=4096),
        bias=config.flag("conv_bias", default=False),
    )
    attention(
        layer.at(layer.prefix, layers_of(types, FULL)),
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        qk_norm=True,
        names=("q_proj", "k_proj", "v_proj", "out_proj"),
        norm_names=("q_layernorm", "k_layernorm"),
    )
    layer.norm("operator_norm", heads.width)
    layer.norm("ffn_norm", heads.width)
    root.final_norm("embedding_norm", heads.width)
    return layer


def finish(
    config: Config,
    model_id: str,
    root: Place,
    heads: Heads,
    *,
    channels: tuple[ChannelMixer, ...],
    default_class: str,
) -> Model:
    """Head and layers, given the channel mixer of each layer."""
    rows = config.integer("vocab_size", default=65536)
    positions = config.integer("max_position_embeddings", default=128000)
    tied = config.flag("tie_word_embeddings", "tie_embedding", default=True)
    if not tied:
        root.at("").lm_head("lm_head", rows, heads.width)
    convolution = ShortConvolution(
        channels=heads.width, kernel=config.integer("conv_L_cache", default=3, maximum=4096)
    )
    return assemble(
        config,
        model_id,
        root,
        default_class=default_class,
        width=heads.width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(convolution if kind == CONV else full_attention(heads),),
                channel_mixer=channels[index],
            )
            for index, kind in enumerate(_types(config, len(channels)))
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def _types(config: Config, count: int) -> tuple[str, ...]:
    """layer_types, or full_attn_idxs; without either every layer attends (Lfm2Config)."""
    chosen = frozenset(config.integers("full_attn_idxs", maximum=MAX_LAYERS) or range(count))
    if max(chosen) >= count:
        raise config.fail("full_attn_idxs", f"names layer {max(chosen)} of {count}")
    return layer_types(
        config,
        count,
        allowed=(CONV, FULL),
        default=tuple(FULL if index in chosen else CONV for index in range(count)),
    )


def _adjusted_width(config: Config) -> int:
    """The MLP's width: two thirds of the stated one, scaled and rounded up to block_multiple_of, unless
    block_auto_adjust_ff_dim is off (Lfm2MLP)."""
    inner = config.integer("block_ff_dim", "intermediate_size", default=12288)
    if not config.flag("block_auto_adjust_ff_dim", default=True):
        return inner
    inner = 2 * inner // 3
    multiplier = config.number("block_ffn_dim_multiplier", default=1.0)
    if not 0 < multiplier <= 1024:
        raise config.fail("block_ffn_dim_multiplier", f"is {multiplier}, outside 0 to 1024")
    multiple = config.integer("block_multiple_of", default=256)
    width = multiple * ceil_div(int(multiplier * inner), multiple)
    if not width:
        raise config.fail("block_ff_dim", "leaves an MLP of no width")
    return width
