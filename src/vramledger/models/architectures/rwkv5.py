"""RWKV-5 "Eagle" (RWKV-5/6 paper, section 3; the published checkpoints' names). The state is a matrix a head."""

from __future__ import annotations

from vramledger.models.architectures.rwkv import channel_mixing, finish, time_mixing
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.mixers import RwkvMixer
from vramledger.models.model import Model
from vramledger.models.tensors import Role, ssm_heads, whole


def describe(config: Config, model_id: str) -> Model:
    """Checkpoints hold a head of their own, whatever tie_word_embeddings says: the 1.5B's published
    1,577,754,624 elements are only reached with it."""
    width = config.integer("hidden_size")
    wide = config.integer("attention_hidden_size", default=width)
    head_size = config.integer("head_size", default=64)
    if wide % head_size:
        raise config.fail("attention_hidden_size", f"{wide} does not divide by head_size {head_size}")
    heads = wide // head_size
    inner = config.integer("intermediate_size", default=max(32, width * 7 // 2 // 32 * 32))
    if config.flag("tie_word_embeddings", default=False):
        config.assume("the config says the head is tied; published RWKV-5 checkpoints hold it apart")

    root = Place(prefix="rwkv.")
    layer = root.at("rwkv.blocks.{layer}.", range(config.num_layers()))
    channels = ssm_heads(heads, head_size)
    layer.tensor("attention.time_decay", Role.SSM_PARAM, ssm_heads(heads), whole(head_size))
    layer.tensor("attention.time_faaaa", Role.SSM_PARAM, ssm_heads(heads), whole(head_size))
    time_mixing(layer, width, channels, mixes=("key", "value", "receptance", "gate"))
    layer.norm("attention.ln_x", channels, bias=True)
    channel_mixing(layer, width, inner)
    state = RwkvMixer(state_elements=2 * width + heads * head_size * head_size)
    return finish(config, model_id, root, state, width=width, inner=inner, tied=False)
