"""RWKV-4 (transformers models/rwkv/modeling_rwkv.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.mixers import DenseMlp, Layer, RwkvMixer
from vramledger.models.model import Model
from vramledger.models.tensors import Axis, Role, hidden, intermediate, ssm_heads, whole


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size")
    wide = config.integer("attention_hidden_size", default=width)
    inner = config.integer("intermediate_size", default=4 * width)
    root = Place(prefix="rwkv.")
    layer = root.at("rwkv.blocks.{layer}.", range(config.num_layers()))
    layer.tensor("attention.time_decay", Role.SSM_PARAM, ssm_heads(wide))
    layer.tensor("attention.time_first", Role.SSM_PARAM, ssm_heads(wide))
    time_mixing(layer, width, ssm_heads(wide), mixes=("key", "value", "receptance"))
    channel_mixing(layer, width, inner)
    # Two token shifts, and numerator, denominator and running maximum of the weighted sum.
    state = RwkvMixer(state_elements=2 * width + 3 * wide)
    tied = config.flag("tie_word_embeddings", default=False)
    return finish(config, model_id, root, state, width=width, inner=inner, tied=tied)


def time_mixing(place: Place, width: int, channels: Axis, *, mixes: tuple[str, ...]) -> None:
    """The interpolations with the last token, one projection for each, and the output projection."""
    for name in mixes:
        place.tensor(f"attention.time_mix_{name}", Role.SSM_PARAM, whole(1), whole(1), hidden(width))
        place.linear(f"attention.{name}", Role.SSM_IN, channels, hidden(width))
    place.linear("attention.output", Role.SSM_OUT, hidden(width), channels)


def channel_mixing(place: Place, width: int, inner: int) -> None:
    for name in ("key", "receptance"):
        place.tensor(f"feed_forward.time_mix_{name}", Role.SSM_PARAM, whole(1), whole(1), hidden(width))
    place.linear("feed_forward.key", Role.UP, intermediate(inner), hidden(width))
    place.linear("feed_forward.receptance", Role.OTHER, hidden(width), hidden(width))
    place.linear("feed_forward.value", Role.DOWN, hidden(width), intermediate(inner))


def finish(
    config: Config, model_id: str, root: Place, state: RwkvMixer, *, width: int, inner: int, tied: bool
) -> Model:
    """Embedding, norms and head around the blocks; the first block has one norm more."""
    rows = config.integer("vocab_size")
    count = config.num_layers()
    layer = root.at("rwkv.blocks.{layer}.", range(count))
    root.embedding("embeddings", rows, width)
    layer.at(layer.prefix, (0,)).norm("pre_ln", width, bias=True)
    layer.norm("ln1", width, bias=True)
    layer.norm("ln2", width, bias=True)
    root.final_norm("ln_out", width, bias=True)
    if not tied:
        root.at("").lm_head("head", rows, width)
    return assemble(
        config,
        model_id,
        root,
        default_class="RwkvForCausalLM",
        width=width,
        rows=rows,
        positions=config.integer("context_length", "max_position_embeddings", default=1024),
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(state,),
                channel_mixer=DenseMlp(intermediate=inner, gated=False),
            )
            for index in range(count)
        ),
    )
