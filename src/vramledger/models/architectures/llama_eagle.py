"""EAGLE draft heads: decoder layers fed by the target's hidden states and the token's embedding.

Source: vllm model_executor/models/llama_eagle.py; SafeAILab/EAGLE model/cnets1.py for the names of published heads.
The first layer has no input norm and there is no last norm; the output head is the target's.
"""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import Role, hidden, whole


def describe(config: Config, model_id: str) -> Model:
    frame = skeleton(config, "EagleLlamaForCausalLM", names=Names(base=""), head="lm_head")
    width, inner = frame.heads.width, config.integer("intermediate_size")
    bias = config.flag("attention_bias", default=False)
    frame.root.linear("fc", Role.OTHER, hidden(width), whole(2 * width))
    frame.attention(bias=bias, o_bias=bias)
    gated_mlp(frame.layer, "mlp", width=width, inner=inner, bias=config.flag("mlp_bias", default=False))
    frame.root.at("layers.{layer}.", range(1, frame.count)).norm("input_layernorm", width)
    frame.norms("post_attention_layernorm")
    return assemble(
        config,
        model_id,
        frame.root,
        default_class="EagleLlamaForCausalLM",
        width=width,
        rows=frame.rows,
        positions=frame.positions,
        tied=False,
        layers=frame.uniform(DenseMlp(intermediate=inner, gated=True)),
        rope=(frame.rope(),),
    )
