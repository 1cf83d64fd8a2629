"""MLP speculator: for every position drafted an embedding, a projection, a norm and an output head.

Source: vllm model_executor/models/mlp_speculator.py (paper 2404.19124). With `tie_weights` all positions share one of
each, apart from the first projection, which reads the target's width.
"""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.model import Model
from vramledger.models.tensors import Role, hidden, vocab, whole

MAX_POSITIONS = 1024


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("emb_dim", "hidden_size", default=4096)
    inner = config.optional_int("inner_dim") or width
    rows = config.integer("vocab_size", default=32000)
    predicted = config.integer("n_predict", default=3, maximum=MAX_POSITIONS)
    positions = config.integer("num_lookahead_tokens", default=predicted, maximum=MAX_POSITIONS)
    copies = 1 if config.flag("tie_weights", default=False) else positions
    later = min(copies, positions - 1) if copies == 1 else positions - 1
    root = Place()
    root.at("emb.{block}.", copies=copies).tensor("weight", Role.EMBEDDING, vocab(rows), hidden(inner))
    root.tensor("proj.0.weight", Role.OTHER, whole(inner), whole(width))
    root.at("proj.{block}.", copies=later).tensor("weight", Role.OTHER, whole(inner), whole(inner))
    norms = root.at("ln.{block}.", copies=copies)
    norms.tensor("weight", Role.NORM, whole(inner))
    norms.tensor("bias", Role.NORM, whole(inner))
    root.at("head.{block}.", copies=copies).tensor("weight", Role.LM_HEAD, vocab(rows), hidden(inner))
    return assemble(
        config,
        model_id,
        root,
        default_class="MLPSpeculatorPreTrainedModel",
        width=width,
        rows=rows,
        positions=2**20,
        tied=False,
        layers=(),
    )
