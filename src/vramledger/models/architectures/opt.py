"""OPT: learnt positions with two spare rows, biases everywhere, tied head (transformers models/opt).

The 350M embeds in 512 and projects to its width of 1024, and has no norm after the last layer.
"""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, assemble, even_heads, full_attention, uniform_layers
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Role, Stage, axis, hidden, whole

_SPARE_POSITIONS = 2


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("OPTConfig", max_position_embeddings=2048, tie_word_embeddings=True)
    heads = even_heads(config, config.integer("hidden_size"), config.integer("num_attention_heads"))
    count = config.num_layers()
    rows = config.integer("vocab_size")
    positions = config.integer("max_position_embeddings")
    inner = config.integer("ffn_dim")
    embedded = config.integer("word_embed_proj_dim", default=heads.width)
    tied = config.flag("tie_word_embeddings")

    root = Place(prefix="model.decoder.")
    root.embedding("embed_tokens", rows, embedded)
    table = axis(AxisKind.POSITION, positions + _SPARE_POSITIONS)
    root.tensor("embed_positions.weight", Role.POSITION_EMBEDDING, table, hidden(heads.width))
    last = root.at(root.prefix, stage=Stage.LAST)
    if embedded != heads.width:
        root.linear("project_in", Role.OTHER, hidden(heads.width), whole(embedded))
        last.linear("project_out", Role.OTHER, whole(embedded), hidden(heads.width))
    _layer(root.at("model.decoder.layers.{layer}.", range(count)), config, heads, inner)
    if config.flag("do_layer_norm_before", default=True) and not config.flag(
        "_remove_final_layer_norm", default=False
    ):
        last.norm("final_layer_norm", heads.width, bias=True)
    if not tied:
        root.at("").lm_head("lm_head", rows, embedded)
    return assemble(
        config,
        model_id,
        root,
        default_class="OPTForCausalLM",
        width=heads.width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=uniform_layers(count, full_attention(heads), DenseMlp(intermediate=inner, gated=False)),
    )


def _layer(layer: Place, config: Config, heads: Heads, inner: int) -> None:
    bias = config.flag("enable_bias", default=True)
    attention(
        layer,
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=bias,
        o_bias=bias,
        names=("q_proj", "k_proj", "v_proj", "out_proj"),
    )
    plain_mlp(layer, "fc1", "fc2", width=heads.width, inner=inner, bias=bias)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        if config.flag("layer_norm_elementwise_affine", default=True):
            layer.norm(name, heads.width, bias=True)
