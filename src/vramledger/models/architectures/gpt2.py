"""GPT-2: learnt positions, biases everywhere, tied head (transformers models/gpt2).

The first checkpoints have no `transformer.` before the names and hold an attention mask a layer, which
nothing loads. Their matrices are stored input first; here rows are outputs, as an engine holds them.
"""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, even_heads
from vramledger.models.dense import Names, Skeleton, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Role, axis, hidden


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("GPT2Config", n_positions=1024, tie_word_embeddings=True)
    frame = gpt2_skeleton(config, "GPT2LMHeadModel", base="")
    return finish_gpt2(frame, model_id)


def gpt2_skeleton(config: Config, default_class: str, *, base: str, heads: Heads | None = None) -> Skeleton:
    """Token and position embeddings under GPT-2's key names; `n_positions` and tying must have a value."""
    shape = heads or even_heads(
        config, config.integer("n_embd", "hidden_size"), config.integer("n_head", "num_attention_heads")
    )
    frame = skeleton(
        config,
        default_class,
        names=Names(base=base, embedding="wte", layer="h.{layer}.", norm="ln_f"),
        heads=shape,
        count=config.num_layers("n_layer", "num_hidden_layers"),
        positions=config.integer("n_positions"),
    )
    frame.root.tensor(
        "wpe.weight", Role.POSITION_EMBEDDING, axis(AxisKind.POSITION, frame.positions), hidden(shape.width)
    )
    return frame


def finish_gpt2(frame: Skeleton, model_id: str) -> Model:
    """The layers that GPT-2 and GPT-BigCode share."""
    width = frame.heads.width
    inner = frame.config.integer("n_inner", default=4 * width)
    frame.fused_attention("attn.c_attn", "attn.c_proj", bias=True, o_bias=True)
    plain_mlp(frame.layer, "mlp.c_fc", "mlp.c_proj", width=width, inner=inner, bias=True)
    frame.norms("ln_1", "ln_2", bias=True)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, norm_bias=True)
