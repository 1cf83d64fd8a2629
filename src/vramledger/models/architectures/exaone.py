"""EXAONE 3 and 3.5: Llama's layer under GPT-2's names (LG AI Research's modeling_exaone.py)."""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model

NAMES = Names(base="transformer.", embedding="wte", layer="h.{layer}.", norm="ln_f")


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("ExaoneConfig", tie_word_embeddings=True)
    inner = config.integer("intermediate_size")
    frame = skeleton(
        config,
        "ExaoneForCausalLM",
        names=NAMES,
        count=config.num_layers("num_layers", "num_hidden_layers"),
    )
    frame.attention("attn.attention", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    gated_mlp(frame.layer, "mlp", width=frame.heads.width, inner=inner, names=("c_fc_0", "c_fc_1", "c_proj"))
    frame.norms("ln_1", "ln_2")
    channel = DenseMlp(intermediate=inner, gated=True)
    return frame.finish(model_id, frame.uniform(channel), rope=(frame.rope(),))
