"""Gemma 3n's audio conformer and multimodal embedders (transformers models/gemma3n/modeling_gemma3n.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Tower
from vramledger.models.tensors import Component, Role, hidden, intermediate, q_heads, whole
from vramledger.models.towers import Vit, patch_embedding, projection, vit_from_config


def gemma3n_audio(root: Place, config: Config, *, tokens: int) -> Tower:
    """The conformer under `model.audio_tower.`. Two convolutions of stride 2 quarter the mel bins.

    Raises ConfigError.
    """
    width = config.integer("hidden_size", default=1536)
    vit = vit_from_config(
        config.replacing(intermediate_size=4 * width),
        Vit(width=1536, heads=8, inner=6144, layers=12),
        heads="conf_num_attention_heads",
        layers="conf_num_hidden_layers",
    )
    channels = config.integers("sscp_conv_channel_size", minimum=1, maximum=65536) or (128, 32)
    if len(channels) != 2:
        raise config.fail("sscp_conv_channel_size", f"must be two numbers, not {len(channels)}")
    bins = config.integer("input_feat_size", default=128, maximum=65536)
    place = root.at("model.audio_tower.", component=Component.AUDIO)
    front = place.at("model.audio_tower.subsample_conv_projection.")
    for index, inp in enumerate((1, channels[0])):
        patch_embedding(front, f"conv_{index}.conv", channels[index], inp, 3, 3, bias=False)
        front.norm(f"conv_{index}.norm", channels[index])
    front.linear("input_proj_linear", Role.OTHER, hidden(vit.width), whole(channels[1] * -(-bins // 4)))
    block = place.at("model.audio_tower.conformer.{block}.", copies=vit.layers)
    _attention(block, vit)
    for feed in ("ffw_layer_start", "ffw_layer_end"):
        block.linear(f"{feed}.ffw_layer_1", Role.UP, intermediate(vit.inner), hidden(vit.width))
        block.linear(f"{feed}.ffw_layer_2", Role.DOWN, hidden(vit.width), intermediate(vit.inner))
        block.norm(f"{feed}.pre_layer_norm", vit.width)
        block.norm(f"{feed}.post_layer_norm", vit.width)
    _light_convolution(block, vit.width, config.integer("conf_conv_kernel_size", default=5, maximum=65536))
    block.norm("norm", vit.width)
    reduction = config.integer("conf_reduction_factor", default=4, maximum=1024)
    return vit.tower("audio", max_item_tokens=tokens, patches_per_token=reduction)


def _attention(block: Place, vit: Vit) -> None:
    heads = q_heads(vit.heads, vit.head_dim)
    for name, role in (("q_proj", Role.Q), ("k_proj", Role.K), ("v_proj", Role.V)):
        block.linear(f"attention.attn.{name}", role, heads, hidden(vit.width))
    block.linear("attention.attn.relative_position_embedding.pos_proj", Role.OTHER, heads, hidden(vit.width))
    block.tensor("attention.attn.per_dim_scale", Role.OTHER, whole(vit.head_dim))
    block.linear("attention.post", Role.O, hidden(vit.width), heads)
    block.norm("attention.pre_attn_norm", vit.width)
    block.norm("attention.post_norm", vit.width)


def _light_convolution(block: Place, width: int, kernel: int) -> None:
    block.linear("lconv1d.linear_start", Role.UP, intermediate(2 * width), hidden(width))
    block.tensor("lconv1d.depthwise_conv1d.weight", Role.OTHER, hidden(width), whole(1), whole(kernel))
    block.linear("lconv1d.linear_end", Role.DOWN, hidden(width), intermediate(width))
    block.norm("lconv1d.pre_layer_norm", width)
    block.norm("lconv1d.conv_norm", width)


def gemma3n_embedder(root: Place, name: str, config: Config, *, width: int, out: int) -> None:
    """From a tower (soft tokens) or its small vocabulary (hard tokens) to the text model's width."""
    place = root.at(f"model.{name}.", component=Component.PROJECTOR)
    place.embedding("embedding", config.integer("vocab_size", default=128), width)
    place.norm("hard_embedding_norm", width)
    place.norm("soft_embedding_norm", width)
    projection(place, "embedding_projection", out, width)
