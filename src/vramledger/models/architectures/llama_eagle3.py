"""EAGLE-3 draft heads: a first layer of doubled input width, fed by hidden states of several target layers.

Source: vllm model_executor/models/llama_eagle3.py. `fc` joins the auxiliary hidden states, the first layer's
queries, keys and values read embedding and hidden state side by side, and the output head may cover a part of the
vocabulary (`draft_vocab_size`), with a table from its tokens to the target's.
"""

from __future__ import annotations

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import Place, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import Role, hidden, kv_heads, q_heads, vocab, whole

AUXILIARY_STATES = 3  # low, middle and high layer (paper 2503.01840, section 3.1)


def describe(config: Config, model_id: str) -> Model:
    config = _unfolded(config)
    frame = skeleton(config, "LlamaForCausalLMEagle3", names=Names(base=""), head="lm_head")
    width, inner = frame.heads.width, config.integer("intermediate_size")
    bias = config.flag("attention_bias", default=False)
    _joining(config, frame.root, width)
    shape, place = frame.heads, _layer_name(config, frame.count)
    layer = frame.root.at(place, range(frame.count))
    for name, role, out in (
        ("self_attn.q_proj", Role.Q, q_heads(shape.heads, shape.head_dim)),
        ("self_attn.k_proj", Role.K, kv_heads(shape.kv, shape.head_dim)),
        ("self_attn.v_proj", Role.V, kv_heads(shape.kv, shape.head_dim)),
    ):
        frame.root.at(place, (0,)).linear(name, role, out, whole(2 * width), bias=bias)
        frame.root.at(place, range(1, frame.count)).linear(name, role, out, hidden(width), bias=bias)
    layer.linear("self_attn.o_proj", Role.O, hidden(width), q_heads(shape.heads, shape.head_dim), bias=bias)
    if config.text("model_type", default="llama") == "qwen3":
        layer.norm("self_attn.q_norm", shape.head_dim)
        layer.norm("self_attn.k_norm", shape.head_dim)
    gated_mlp(layer, "mlp", width=width, inner=inner, bias=config.flag("mlp_bias", default=False))
    for norm in ("input_layernorm", "post_attention_layernorm", "hidden_norm"):
        layer.norm(norm, width)
    frame.root.final_norm("norm", width)
    rows = config.integer("draft_vocab_size", default=frame.rows)
    frame.root.lm_head("lm_head", rows, width)
    if rows != frame.rows:
        frame.root.tensor("d2t", Role.OTHER, vocab(rows), dtype=DType.I64, parameter=False)
    return assemble(
        config,
        model_id,
        frame.root,
        default_class="LlamaForCausalLMEagle3",
        width=width,
        rows=frame.rows,
        positions=frame.positions,
        tied=False,
        layers=frame.uniform(DenseMlp(intermediate=inner, gated=True)),
        rope=(frame.rope(),),
    )


def _unfolded(config: Config) -> Config:
    """The speculators format: the decoder's own keys in `transformer_layer_config`, the head's around it
    (vllm transformers_utils/configs/speculators/algos.py)."""
    inner = config.optional_sub("transformer_layer_config")
    if inner is None:
        return config
    around = ("architectures", "draft_vocab_size", "target_hidden_size", "norm_before_fc", "fc_norm",
              "eagle_aux_hidden_state_layer_ids", "dtype", "torch_dtype")  # fmt: skip
    return inner.replacing(**{key: config.raw(key) for key in around if key in config})


def _layer_name(config: Config, count: int) -> str:
    """The authors' own checkpoints call their one layer `midlayer`."""
    named = any(name.endswith("Eagle3") for name in config.texts("architectures"))
    return "midlayer." if named and count == 1 else "layers.{layer}."


def _joining(config: Config, root: Place, width: int) -> None:
    """The projection of the auxiliary states to the draft's width, and the norms some heads put before it."""
    head = config.optional_sub("eagle_config")
    ids = (head or config).integers("eagle_aux_hidden_state_layer_ids")
    if head is not None and not head.flag("use_aux_hidden_state", default=True):
        return
    states = config.integer("num_aux_hidden_states", default=len(ids) or AUXILIARY_STATES)
    each = config.integer("target_hidden_size", default=width)
    root.linear("fc", Role.OTHER, hidden(width), whole(states * each))
    if config.flag("norm_before_fc", default=False):
        root.norm("input_norm", states * each)
    if config.flag("fc_norm", default=False):
        root.at("fc_norm.{block}.", copies=states).tensor("weight", Role.NORM, whole(each))
