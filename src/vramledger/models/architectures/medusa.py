"""Medusa heads: for every position drafted, residual blocks over the target's last hidden state and an output head.

Source: vllm model_executor/models/medusa.py, transformers_utils/configs/medusa.py (any key with `num` and `heads` is
the number of heads, any with `num` and `layers` that of a head's blocks). The engine builds as many heads as tokens are
asked for, which `num_lookahead_tokens` states.
"""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.model import Model
from vramledger.models.tensors import Role, hidden, vocab, whole

MAX_HEADS = 1024


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size", default=4096)
    rows = config.integer("vocab_size", default=32001)
    heads = config.integer("num_lookahead_tokens", *_keys(config, "heads"), default=5, maximum=MAX_HEADS)
    blocks = config.num_layers("num_hidden_layers", *_keys(config, "layers"), default=1)
    root = Place()
    # ParallelLMHead is cut by the vocabulary, the blocks are plain linears that every rank holds.
    inner = root.at("blocks.{block}.layers.{block}.", copies=heads * blocks)
    inner.tensor("weight", Role.OTHER, whole(width), whole(width))
    if config.flag("medusa_fc_bias", default=False):
        inner.tensor("bias", Role.OTHER, whole(width))
    if config.flag("original_lm_head", default=False):
        kept = config.integer("truncated_vocab_size", default=rows)
        root.linear("lm_head", Role.LM_HEAD, vocab(kept), hidden(width), quantizable=False)
    else:
        out = root.at("lm_heads.{block}.", copies=heads)
        out.tensor("weight", Role.LM_HEAD, vocab(rows), hidden(width))
    return assemble(
        config,
        model_id,
        root,
        default_class="MedusaModel",
        width=width,
        rows=rows,
        positions=2**20,
        tied=False,
        layers=(),
    )


def _keys(config: Config, what: str) -> tuple[str, ...]:
    names = config.keys()
    return tuple(key for key in names if "num" in key and what in key and "attention" not in key)
