"""XLM-RoBERTa and RoBERTa as embedding models and rerankers (transformers
models/xlm_roberta/modeling_xlm_roberta.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.encdec import encoder_layers
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Role, axis, hidden, whole

NAMES = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
)


def describe(config: Config, model_id: str) -> Model:
    """Positions count from pad_token_id + 1, so the table has that many rows more than the longest input.

    Raises ConfigError for a class other than the plain model and the sequence classifier.
    """
    width = config.integer("hidden_size", default=1024)
    heads = config.integer("num_attention_heads", default=16)
    if width % heads:
        raise config.fail("hidden_size", f"{width} does not divide by num_attention_heads {heads}")
    count = config.num_layers(default=24)
    inner = config.integer("intermediate_size", default=4096)
    rows = config.integer("vocab_size")
    table = config.integer("max_position_embeddings", default=514)
    pad = config.integer("pad_token_id", default=1, minimum=0)
    if table <= pad + 1:
        raise config.fail("max_position_embeddings", f"{table} leaves no position after padding index {pad}")
    architecture = (config.texts("architectures") or ("XLMRobertaModel",))[0]
    classifies = architecture.endswith("ForSequenceClassification")
    if not classifies and not architecture.endswith("RobertaModel"):
        raise config.fail("architectures", f"names {architecture[:80]!r}, a head this description lacks")

    prefix = "roberta." if classifies else ""
    root = Place(prefix=prefix)
    words = root.at(f"{prefix}embeddings.")
    words.embedding("word_embeddings", rows, width)
    positions = axis(AxisKind.POSITION, table)
    words.tensor("position_embeddings.weight", Role.POSITION_EMBEDDING, positions, hidden(width))
    kinds = whole(config.integer("type_vocab_size", default=2))
    words.tensor("token_type_embeddings.weight", Role.OTHER, kinds, hidden(width))
    words.norm("LayerNorm", width, bias=True)
    layer = root.at(f"{prefix}encoder.layer.{{layer}}.", range(count))
    head_dim = width // heads
    attention(
        layer, "", width=width, heads=heads, kv=heads, head_dim=head_dim, bias=True, o_bias=True, names=NAMES
    )
    layer.norm("attention.output.LayerNorm", width, bias=True)
    plain_mlp(layer, "intermediate.dense", "output.dense", width=width, inner=inner, bias=True)
    layer.norm("output.LayerNorm", width, bias=True)
    _list_head(root, config, width, classifies=classifies)

    return assemble(
        config,
        model_id,
        root,
        default_class="XLMRobertaModel",
        width=width,
        rows=rows,
        positions=table - pad - 1,
        tied=False,
        layers=encoder_layers(
            count, heads=heads, head_dim=head_dim, channel=DenseMlp(intermediate=inner, gated=False)
        ),
        is_pooling=True,
    )


def _list_head(root: Place, config: Config, width: int, *, classifies: bool) -> None:
    """A pooler, or a classifier of one output a label."""
    if not classifies:
        root.linear("pooler.dense", Role.OTHER, hidden(width), hidden(width), bias=True)
        return
    names = config.optional_sub("id2label")
    labels = len(names.keys()) if names else config.integer("num_labels", default=2)
    head = root.at("classifier.")
    head.linear("dense", Role.OTHER, hidden(width), hidden(width), bias=True)
    head.linear("out_proj", Role.OTHER, whole(max(1, labels)), hidden(width), bias=True)
