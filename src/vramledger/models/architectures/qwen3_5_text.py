"""The text model of Qwen3.5 and its mixtures, alone or inside a multimodal config (transformers
models/qwen3_5/modeling_qwen3_5.py and models/qwen3_5_moe/modeling_qwen3_5_moe.py)."""

from __future__ import annotations

from vramledger.models.architectures.qwen3_next import MAX_DRAFT_LAYERS, Style, build
from vramledger.models.config import Config
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    """A text config at the top of a file. Exports that keep the multimodal class keep its names too, and
    store experts one by one."""
    tied = config.flag("tie_word_embeddings", default=False)
    wrapped = any(name.endswith("ForConditionalGeneration") for name in config.texts("architectures"))
    prefix = "model.language_model." if wrapped else "model."
    return describe_text(
        config,
        model_id,
        tied=tied,
        prefix=prefix,
        moe=config.text("model_type", default="qwen3_5_text") == "qwen3_5_moe_text",
        fused=False,
    )


def describe_text(config: Config, model_id: str, *, tied: bool, prefix: str, moe: bool, fused: bool) -> Model:
    """The text part; `moe` has experts in every layer, `fused` says that experts are stored as two 3-D tensors."""
    count = config.num_layers()
    draft = config.integer("mtp_num_hidden_layers", default=0, minimum=0, maximum=MAX_DRAFT_LAYERS)
    if draft:
        config.assume(
            "the MTP block is listed since the config states it; a re-released checkpoint may lack it"
        )
    style = Style(
        default_class="Qwen3_5MoeForCausalLM" if moe else "Qwen3_5ForCausalLM",
        fused_delta=False,
        fused_experts=fused,
        sparse_layers=tuple(range(count)) if moe else (),
        draft_layers=draft,
        prefix=prefix,
    )
    return build(config, model_id, style, tied=tied)
