"""XLM-RoBERTa, RoBERTa and BERT: encoders for embeddings and classification (transformers models/xlm_roberta,
models/bert).

RoBERTa counts positions from the padding index on, so its table has two rows more than it takes tokens.
"""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, assemble, even_heads, uniform_layers
from vramledger.models.mixers import DenseMlp, EncoderAttention
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Component, Role, axis, hidden, whole


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("XLMRobertaConfig", max_position_embeddings=512, type_vocab_size=2)
    heads = even_heads(config, config.integer("hidden_size"), config.integer("num_attention_heads"))
    count = config.num_layers()
    rows = config.integer("vocab_size")
    table = config.integer("max_position_embeddings")
    inner = config.integer("intermediate_size")
    kind = config.text("model_type", default="xlm-roberta")
    spare = 0 if kind == "bert" else config.integer("pad_token_id", default=1, minimum=0) + 1
    if table <= spare:
        raise config.fail("max_position_embeddings", f"{table} leaves no position after the padding index")

    classes = config.texts("architectures")
    name = classes[0] if classes else "XLMRobertaModel"
    base = "" if name.endswith("Model") else ("bert." if kind == "bert" else "roberta.")
    root = Place(prefix=base, component=Component.ENCODER)
    embeddings = root.at(base + "embeddings.")
    embeddings.embedding("word_embeddings", rows, heads.width)
    for part, size in (
        ("position_embeddings", table),
        ("token_type_embeddings", config.integer("type_vocab_size")),
    ):
        embeddings.tensor(
            f"{part}.weight", Role.POSITION_EMBEDDING, axis(AxisKind.POSITION, size), hidden(heads.width)
        )
    embeddings.norm("LayerNorm", heads.width, bias=True)
    _layer(root.at(base + "encoder.layer.{layer}.", range(count)), heads, inner)
    _head(root, config, name, heads.width)

    mixer = EncoderAttention(
        q_heads=heads.heads, kv_heads=heads.kv, head_dim=heads.head_dim, v_head_dim=heads.head_dim
    )
    return assemble(
        config,
        model_id,
        root,
        default_class="XLMRobertaModel",
        width=heads.width,
        rows=rows,
        positions=table - spare,
        tied=False,
        layers=uniform_layers(count, mixer, DenseMlp(intermediate=inner, gated=False)),
        is_pooling=True,
    )


def _layer(layer: Place, heads: Heads, inner: int) -> None:
    attention(
        layer,
        "attention",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=True,
        o_bias=True,
        names=("self.query", "self.key", "self.value", "output.dense"),
    )
    layer.norm("attention.output.LayerNorm", heads.width, bias=True)
    plain_mlp(layer, "intermediate.dense", "output.dense", width=heads.width, inner=inner, bias=True)
    layer.norm("output.LayerNorm", heads.width, bias=True)


def _head(root: Place, config: Config, name: str, width: int) -> None:
    """What follows the layers: a pooler, or the head of the class; the masked-language head's matrix is tied."""
    square = (hidden(width), hidden(width))
    plain = root.at("")
    if name.endswith("Model"):
        root.linear("pooler.dense", Role.OTHER, *square, bias=True)
    elif name.endswith("ForSequenceClassification"):
        labels = whole(config.num_labels())
        if name.startswith("Bert"):
            root.linear("pooler.dense", Role.OTHER, *square, bias=True)
            plain.linear("classifier", Role.OTHER, labels, hidden(width), bias=True)
        else:
            plain.linear("classifier.dense", Role.OTHER, *square, bias=True)
            plain.linear("classifier.out_proj", Role.OTHER, labels, hidden(width), bias=True)
    else:
        config.assume(f"the head of {name} is left out: the encoder alone is described")
