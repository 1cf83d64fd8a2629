"""GPT-J: one norm a layer, no biases in attention, a biased head (transformers models/gptj)."""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import even_heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model, Rope

NAMES = Names(base="transformer.", embedding="wte", layer="h.{layer}.", norm="ln_f")


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("GPTJConfig", n_positions=2048, rotary_dim=64)
    heads = even_heads(
        config, config.integer("n_embd", "hidden_size"), config.integer("n_head", "num_attention_heads")
    )
    inner = config.integer("n_inner", default=4 * heads.width)
    rotary = config.integer("rotary_dim", default=heads.head_dim, maximum=heads.head_dim)
    frame = skeleton(
        config,
        "GPTJForCausalLM",
        names=NAMES,
        heads=heads,
        count=config.num_layers("n_layer", "num_hidden_layers"),
        positions=config.integer("n_positions"),
    )
    frame.attention("attn", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    plain_mlp(frame.layer, "mlp.fc_in", "mlp.fc_out", width=heads.width, inner=inner, bias=True)
    frame.norms("ln_1", bias=True)
    return frame.finish(
        model_id,
        frame.uniform(DenseMlp(intermediate=inner, gated=False)),
        rope=(Rope(rotary_dim=rotary, max_positions=frame.positions),),
        norm_bias=True,
        head_bias=True,
    )
