"""DeepSeek-OCR-2: a small DeepSeek-V2 mixture with plain attention, behind SAM and a Qwen2 encoder
(transformers models/deepseek_ocr2/modeling_deepseek_ocr2.py).

The type is DeepSeek-VL2's; its other towers are not described here.
"""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place, attention, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.model import Model, Tower
from vramledger.models.moe import MoeNames, attends, mixture_from_config, moe_decoder, sparse_layers
from vramledger.models.multimodal import compose, text_config
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import AxisKind, Component, Role, axis, hidden
from vramledger.models.towers import Vit, pixels, projection, vector
from vramledger.models.towers_sam import sam_vision

ENCODER = "deepencoderv2"
QWEN2 = Vit(width=896, heads=14, inner=4864, layers=24)
QWEN2_KV = 2
QUERIES = {"query_768": 144, "query_1024": 256}
"""Learned queries for tiles of 768 pixels and for the whole image of 1024."""
TILES = 6
"""`max_patches` of DeepseekOcr2ImageProcessor."""


def describe(config: Config, model_id: str) -> Model:
    nested = text_config(config, "language_config", as_type="deepseek_v2")
    if nested.flag("use_mla", default=True):
        text = architectures.describe(nested, model_id)
    else:
        text = _text(nested, model_id)
    root = Place(component=Component.VISION)
    tower = _vision(root, config.sub("vision_config"))
    projector = root.at("model.", component=Component.PROJECTOR)
    kind = config.sub("projector_config").text("projector_type", default="linear")
    if kind != "linear":
        raise config.fail("projector_config", f"is of type {kind!r}; the linear one is described here")
    projection(projector, "projector.layers", text.hidden_size, tower.hidden_size, bias=True)
    vector(projector, "view_seperator", text.hidden_size)
    return compose(text, config, model_id, prefixes={}, extra=root.into, towers=(tower,))


def _text(config: Config, model_id: str) -> Model:
    """DeepSeek-V2's layers with multi-head attention (`use_mla` false)."""
    heads = heads_from_config(config)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=2048)
    return moe_decoder(
        config,
        model_id,
        default_class="DeepseekV2ForCausalLM",
        width=heads.width,
        mixers=(full_attention(heads),) * count,
        moe=mixture_from_config(config, shared="n_shared_experts"),
        attend=attends(heads),
        names=MoeNames(),
        sparse=sparse_layers(config, count),
        dense_inner=config.integer("intermediate_size"),
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def _vision(root: Place, config: Config) -> Tower:
    """SAM's features become tokens of a Qwen2 encoder, whose learned queries are the output."""
    name = config.text("model_name", default="")
    if name != ENCODER:
        raise config.fail("model_name", f"{name!r} is not a tower described here ({ENCODER})")
    widths = config.sub("width")
    image = pixels(config, "image_size", 1024)
    if widths.sub("qwen2-0-5b").integer("dim", default=QWEN2.width) != QWEN2.width:
        raise config.fail("width", f"of qwen2-0-5b is not the {QWEN2.width} of that model")
    sam_vision(root.at("model.sam_model."), widths.sub("sam_vit_b"), image=image, out=QWEN2.width)
    config.assume("the encoder behind SAM is named, not described: Qwen2 0.5B's dimensions taken")
    for query, rows in QUERIES.items():
        table = axis(AxisKind.POSITION, rows)
        root.tensor(f"model.qwen2_model.{query}.weight", Role.POSITION_EMBEDDING, table, hidden(QWEN2.width))
    base = "model.qwen2_model.model.model."
    block = root.at(f"{base}layers.{{block}}.", copies=QWEN2.layers)
    attention(
        block,
        "self_attn",
        width=QWEN2.width,
        heads=QWEN2.heads,
        kv=QWEN2_KV,
        head_dim=QWEN2.head_dim,
        bias=True,
    )
    gated_mlp(block, "mlp", width=QWEN2.width, inner=QWEN2.inner)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        block.norm(norm, QWEN2.width)
    root.at(base).norm("norm", QWEN2.width)
    largest = TILES * QUERIES["query_768"] + QUERIES["query_1024"] + 1
    return QWEN2.tower("image", max_item_tokens=largest, patches_per_token=2)
