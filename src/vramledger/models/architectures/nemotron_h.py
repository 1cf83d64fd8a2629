"""Nemotron-H and Nemotron 3: every layer is one thing, Mamba-2, attention, MLP or experts (transformers
models/nemotron_h/modeling_nemotron_h.py). Attention has no positions; MLPs are not gated.

The names are the published checkpoints' (`backbone.`), MTP blocks those of vLLM's nemotron_h_mtp.py.
"""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, layers_of, plain_mlp, routed_experts, router
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import Heads, assemble, full_attention, heads_from_config
from vramledger.models.hybrid import layer_types, pattern_types
from vramledger.models.mixers import DenseMlp, Layer, Mamba2, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.models.recurrent import checked_mamba2, mamba2
from vramledger.models.tensors import Component, Role, Stage, hidden, intermediate, latent

KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
MAX_DRAFT_STEPS = 64


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(
        config,
        default_heads=32,
        default_kv=8,
        default_head_dim=128,
        head_dim_keys=("head_dim", "attention_head_dim"),
    )
    rows = config.integer("vocab_size", default=131072)
    positions = config.integer("max_position_embeddings", default=4096)
    if "max_position_embeddings" not in config:
        config.assume("max_position_embeddings 4096 is the model class's default")
    tied = config.flag("tie_word_embeddings", default=False)
    types = _types(config)

    root = Place(prefix="backbone.")
    root.embedding("embeddings", rows, heads.width)
    layer = root.at("backbone.layers.{layer}.", range(len(types)))
    layer.norm("norm", heads.width)
    for kind in KINDS.values():
        _list_mixer(layer.at(layer.prefix, layers_of(types, kind)), config, heads, kind)
    root.final_norm("norm_f", heads.width)
    if not tied:
        root.at("").lm_head("lm_head", rows, heads.width)
    draft = _list_draft(root, config, heads)

    return assemble(
        config,
        model_id,
        root,
        default_class="NemotronHForCausalLM",
        width=heads.width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(_layer(config, heads, index, kind) for index, kind in enumerate(types)),
        draft_layers=tuple(
            _layer(config, heads, index, kind) for index, kind in enumerate(draft, start=len(types))
        ),
    )


def _types(config: Config) -> tuple[str, ...]:
    types = pattern_types(config, "hybrid_override_pattern", KINDS, maximum=MAX_LAYERS)
    if types:
        count = config.num_layers(default=len(types))
        if count != len(types):
            raise config.fail("hybrid_override_pattern", f"has {len(types)} letters for {count} layers")
        return types
    listed = len(config.texts("layers_block_type"))
    if not 0 < listed <= MAX_LAYERS:
        raise config.fail(
            "hybrid_override_pattern (or layers_block_type)", f"must name 1 to {MAX_LAYERS} layers"
        )
    return layer_types(
        config,
        config.num_layers(default=listed),
        allowed=tuple(KINDS.values()),
        keys=("layers_block_type",),
    )


def _mamba(config: Config) -> Mamba2:
    mixer = Mamba2(
        heads=config.integer("mamba_num_heads", default=128),
        head_dim=config.integer("mamba_head_dim", default=64),
        groups=config.integer("n_groups", default=8),
        state=config.integer("ssm_state_size", default=128),
        conv_kernel=config.integer("conv_kernel", default=4, maximum=4096),
    )
    return checked_mamba2(config, mixer, inner=None, heads_key="mamba_num_heads")


def _mixture(config: Config) -> MixtureOfExperts:
    experts = config.integer("n_routed_experts", default=8)
    return MixtureOfExperts(
        num_experts=experts,
        top_k=config.integer("num_experts_per_tok", default=2, maximum=experts),
        intermediate=config.integer("moe_intermediate_size"),
        shared_intermediate=config.integer("moe_shared_expert_intermediate_size")
        * config.integer("n_shared_experts", default=1, minimum=0, maximum=1024),
        gated=False,
    )


def _list_mixer(place: Place, config: Config, heads: Heads, kind: str) -> None:
    """The `mixer` of one kind, over the place's layers; nothing where it has none."""
    if not place.layers and not place.copies:
        return
    width = heads.width
    if kind == "mamba":
        mamba2(
            place,
            "mixer",
            _mamba(config),
            width=width,
            bias=config.flag("use_bias", default=False),
            conv_bias=config.flag("use_conv_bias", default=True),
        )
    elif kind == "attention":
        bias = config.flag("attention_bias", default=False)
        attention(
            place,
            "mixer",
            width=width,
            heads=heads.heads,
            kv=heads.kv,
            head_dim=heads.head_dim,
            bias=bias,
            o_bias=bias,
        )
    elif kind == "mlp":
        plain_mlp(
            place,
            "mixer.up_proj",
            "mixer.down_proj",
            width=width,
            inner=config.integer("intermediate_size"),
            bias=config.flag("mlp_bias", default=False),
        )
    else:
        _list_experts(place, config, width)


def _list_experts(place: Place, config: Config, width: int) -> None:
    """Experts, which work in a narrower space where moe_latent_size is set, beside a shared MLP."""
    mixture = _mixture(config)
    narrow = config.optional_int("moe_latent_size", minimum=1)
    router(
        place,
        "mixer.gate",
        width=width,
        count=mixture.num_experts,
        correction_bias="mixer.gate.e_score_correction_bias",
    )
    routed_experts(
        place,
        "mixer.experts",
        width=narrow or width,
        inner=mixture.intermediate,
        count=mixture.num_experts,
        gated=False,
    )
    if mixture.shared_intermediate:
        inner = intermediate(mixture.shared_intermediate)
        place.linear("mixer.shared_experts.up_proj", Role.SHARED_UP, inner, hidden(width))
        place.linear("mixer.shared_experts.down_proj", Role.SHARED_DOWN, hidden(width), inner)
    if narrow:
        place.linear("mixer.fc1_latent_proj", Role.OTHER, latent(narrow), hidden(width))
        place.linear("mixer.fc2_latent_proj", Role.OTHER, hidden(width), latent(narrow))


def _list_draft(root: Place, config: Config, heads: Heads) -> tuple[str, ...]:
    """MTP blocks: a projection of (embedding, hidden), the layers of one step, a last norm. Returns the kinds."""
    steps = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=MAX_DRAFT_STEPS)
    kinds = pattern_types(config, "mtp_hybrid_override_pattern", KINDS, maximum=MAX_DRAFT_STEPS)
    if not kinds and config.texts("mtp_layers_block_type"):
        listed = len(config.texts("mtp_layers_block_type"))
        kinds = layer_types(
            config,
            min(listed, MAX_DRAFT_STEPS),
            allowed=tuple(KINDS.values()),
            keys=("mtp_layers_block_type",),
        )
    if not steps or not kinds:
        return ()
    config.assume(
        "MTP blocks are listed since the config states them; a re-released checkpoint may lack them"
    )
    for index, kind in enumerate(kinds * steps):
        place = root.at(f"mtp.layers.{index}.", (), copies=1, stage=Stage.LAST, component=Component.DRAFT)
        if index % len(kinds) == 0:
            place.linear("eh_proj", Role.OTHER, hidden(heads.width), hidden(2 * heads.width))
            place.norm("enorm", heads.width)
            place.norm("hnorm", heads.width)
        place.norm("norm", heads.width)
        _list_mixer(place, config, heads, kind)
        if (index + 1) % len(kinds) == 0:
            place.norm("final_layernorm", heads.width)
    return kinds * steps


def _layer(config: Config, heads: Heads, index: int, kind: str) -> Layer:
    if kind == "mamba":
        return Layer(index=index, token_mixers=(_mamba(config),), channel_mixer=None)
    if kind == "attention":
        return Layer(index=index, token_mixers=(full_attention(heads),), channel_mixer=None)
    if kind == "mlp":
        inner = config.integer("intermediate_size")
        return Layer(index=index, token_mixers=(), channel_mixer=DenseMlp(intermediate=inner, gated=False))
    return Layer(index=index, token_mixers=(), channel_mixer=_mixture(config))
