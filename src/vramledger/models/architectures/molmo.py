"""Molmo: OLMo's decoder with fused projections behind CLIP, pooled 2 x 2 (allenai/Molmo-7B-D-0924, modeling_molmo.py).

The config describes the text model only; the tower is the class's (image_vit of MolmoVisionBackbone).
"""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, fused_attention, fused_gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble, full_attention, heads_from_config, uniform_layers
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, hidden, intermediate, vocab, whole
from vramledger.models.towers import BlockNames, Vit, encoder_block, patch_embedding, positions, vector

EXTRA_ROWS = 128
"""`additional_vocab_size`: rows for image tokens, kept apart from the vocabulary."""
STORED_LAYERS = 23
"""Of 24 layers the last is never read (`vit_layers` are -2 and -9), and is not stored."""
CLIP = Vit(width=1024, heads=16, inner=4096, layers=STORED_LAYERS)
PATCH, POSITIONS, TAPS = 14, 577, 2

BLOCK = BlockNames(
    attention=("attention.wq", "attention.wk", "attention.wv", "attention.wo"),
    mlp=("feed_forward.w1", "feed_forward.w2"),
    norms=("attention_norm", "ffn_norm"),
)


def describe(config: Config, model_id: str) -> Model:
    text = _text(config, model_id)
    root = Place(component=Component.VISION)
    base = "model.vision_backbone."
    tower = root.at(f"{base}image_vit.")
    vector(tower, "class_embedding", CLIP.width)
    patch_embedding(tower, "patch_embedding", CLIP.width, 3 * PATCH * PATCH, bias=False)
    positions(tower, "positional_embedding", CLIP.width, POSITIONS)
    tower.norm("pre_ln", CLIP.width, bias=True)
    encoder_block(
        tower.at(f"{base}image_vit.transformer.resblocks.{{block}}.", copies=CLIP.layers), CLIP, BLOCK
    )
    projector = root.at(base, component=Component.PROJECTOR)
    tapped = TAPS * CLIP.width
    projector.tensor("pad_embed", Role.OTHER, whole(2), hidden(tapped))
    attention(
        projector,
        "image_pooling_2d",
        width=tapped,
        heads=CLIP.heads,
        kv=CLIP.heads,
        head_dim=CLIP.head_dim,
        bias=True,
        o_bias=True,
        out_width=CLIP.width,
        names=("wq", "wk", "wv", "wo"),
    )
    _projector(projector, inner=text.intermediate_size, width=text.hidden_size)
    config.assume("the tower is the class's: CLIP ViT-L/14 at 336 pixels, layers -2 and -9")
    return compose(
        text,
        config,
        model_id,
        prefixes={},
        extra=root.into,
        towers=(CLIP.tower("image", patches_per_token=4),),
    )


def _text(config: Config, model_id: str) -> Model:
    doubled = config.integer("intermediate_size", minimum=2)
    if doubled % 2:
        raise config.fail("intermediate_size", f"is {doubled}, which does not halve")
    for variant in ("norm_after", "attention_layer_norm"):
        if config.flag(variant, default=False):
            raise config.fail(variant, "is true, a variant that is not described here")
    inner = doubled // 2
    heads = heads_from_config(config)
    width = heads.width
    count = config.num_layers()
    rows = config.integer("embedding_size", default=config.integer("vocab_size"))
    positions = config.integer("max_position_embeddings")
    tied = config.flag("weight_tying", default=False)

    root = Place(prefix="model.transformer.")
    root.tensor("wte.embedding", Role.EMBEDDING, vocab(rows), hidden(width))
    root.tensor("wte.new_embedding", Role.EMBEDDING, vocab(EXTRA_ROWS), hidden(width))
    layer = root.at("model.transformer.blocks.{layer}.", range(count))
    fused_attention(
        layer,
        "att_proj",
        "attn_out",
        width=width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=config.flag("qkv_bias", default=False),
    )
    fused_gated_mlp(layer, "ff_proj", "ff_out", width=width, inner=inner)
    layer.norm("attn_norm", width)
    layer.norm("ff_norm", width)
    root.final_norm("ln_f", width)
    if not tied:
        root.lm_head("ff_out", rows, width)
    return assemble(
        config,
        model_id,
        root,
        default_class="MolmoForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=uniform_layers(count, full_attention(heads), DenseMlp(intermediate=inner, gated=True)),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def _projector(place: Place, *, inner: int, width: int) -> None:
    """A gated MLP from the tower's width to the text model's: w1 and w3 in, w2 out."""
    for name in ("w1", "w3"):
        place.linear(f"image_projector.{name}", Role.PROJECTOR, intermediate(inner), hidden(CLIP.width))
    place.linear("image_projector.w2", Role.PROJECTOR, hidden(width), intermediate(inner))
