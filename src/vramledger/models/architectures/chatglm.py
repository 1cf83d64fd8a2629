"""ChatGLM2, ChatGLM3 and GLM-4 before Transformers' own form (Zhipu's modeling_chatglm.py).

Half of each head is rotated. ChatGLM-6B and GLM-4V carry the same model_type with another architecture and
are refused.
"""

from __future__ import annotations

from vramledger.errors import UnknownArchitecture
from vramledger.models.blocks import fused_gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import Role, Stage, whole

NAMES = Names(
    base="transformer.",
    embedding="embedding.word_embeddings",
    layer="encoder.layers.{layer}.",
    norm="encoder.final_layernorm",
    head="transformer.output_layer",
)


def describe(config: Config, model_id: str) -> Model:
    for key, what in (("inner_hidden_size", "ChatGLM-6B"), ("vision_config", "GLM-4V")):
        if key in config:
            raise UnknownArchitecture(
                f"{model_id}: model_type 'chatglm' with {key} is {what}, which has no description here",
                model_type="chatglm",
                architectures=config.texts("architectures"),
            )
    config = config.with_defaults("ChatGLMConfig", ffn_hidden_size=13696, kv_channels=128, seq_length=2048)
    count = config.num_layers("num_layers", "num_hidden_layers")
    width = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    grouped = config.flag("multi_query_attention", default=False)
    kv = config.integer("multi_query_group_num", default=1) if grouped else heads
    if heads % kv:
        raise config.fail("num_attention_heads", f"{heads} does not divide by multi_query_group_num {kv}")
    shape = Heads(width=width, heads=heads, kv=kv, head_dim=config.integer("kv_channels"))
    inner = config.integer("ffn_hidden_size")
    bias = config.flag("add_bias_linear", default=False)
    norm_bias = not config.flag("rmsnorm", default=True)

    frame = skeleton(
        config,
        "ChatGLMModel",
        names=NAMES,
        heads=shape,
        count=count,
        rows=config.integer("padded_vocab_size", "vocab_size"),
        positions=config.integer("seq_length"),
        head="lm_head",
    )
    frame.root.at(frame.root.prefix, stage=Stage.EVERY).tensor(
        "rotary_pos_emb.inv_freq", Role.OTHER, whole(max(shape.head_dim // 4, 1)), parameter=False
    )
    frame.fused_attention(
        "self_attention.query_key_value",
        "self_attention.dense",
        bias=bias or config.flag("add_qkv_bias", default=False),
        o_bias=bias,
    )
    fused_gated_mlp(
        frame.layer, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", width=width, inner=inner, bias=bias
    )
    frame.norms("input_layernorm", "post_attention_layernorm", bias=norm_bias)
    return frame.finish(
        model_id,
        frame.uniform(DenseMlp(intermediate=inner, gated=True)),
        rope=(frame.rope(rotary=shape.head_dim // 2),),
        final_norm=config.flag("post_layer_norm", default=True),
        norm_bias=norm_bias,
    )
