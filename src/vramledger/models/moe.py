"""Decoders whose layers hold a mixture of experts: which layers, where a checkpoint keeps the parts, assembly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import SHARED, Place, attention, gated_mlp, routed_experts, router
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import Heads, assemble
from vramledger.models.mixers import ChannelMixer, DenseMlp, Layer, MixtureOfExperts, TokenMixer
from vramledger.models.model import Model, Rope
from vramledger.models.tensors import Component, Role, hidden

GATED = ("gate_proj", "up_proj", "down_proj")
W123 = ("w1", "w3", "w2")
"""Mixtral's names: w1 gates, w3 goes up, w2 goes down."""


class MoeNames(Struct, frozen=True, kw_only=True):
    """Paths of a mixture's parts inside a layer; all but `block` are below `block`.

    `bias` names the router's fp32 correction bias ("": none) and `router_dtype` the router's element type
    where it is not the model's.
    """

    block: str = "mlp"
    router: str = "gate"
    bias: str = ""
    experts: str = "experts"
    parts: tuple[str, str, str] = GATED
    shared: str = "shared_experts"
    shared_parts: tuple[str, str, str] = GATED
    router_dtype: DType | None = None


MIXTRAL_NAMES = MoeNames(block="block_sparse_moe", parts=W123)
DEEPSEEK_NAMES = MoeNames(bias="gate.e_score_correction_bias")


def mixture(place: Place, moe: MixtureOfExperts, names: MoeNames, *, width: int) -> None:
    """Router, routed experts one by one, and the shared expert where there is one."""
    router(
        place,
        f"{names.block}.{names.router}",
        width=width,
        count=moe.num_experts,
        correction_bias=f"{names.block}.{names.bias}" if names.bias else "",
        dtype=names.router_dtype,
    )
    routed_experts(
        place,
        f"{names.block}.{names.experts}",
        width=width,
        inner=moe.intermediate,
        count=moe.num_experts,
        names=names.parts,
    )
    if moe.shared_intermediate:
        gated_mlp(
            place,
            f"{names.block}.{names.shared}",
            width=width,
            inner=moe.shared_intermediate,
            names=names.shared_parts,
            roles=SHARED,
        )


def mixture_from_config(
    config: Config,
    *,
    count: Sequence[str] = ("n_routed_experts", "num_experts", "num_local_experts"),
    top_k: Sequence[str] = ("num_experts_per_tok",),
    inner: Sequence[str] = ("moe_intermediate_size",),
    shared: str = "",
    default_shared: int = 0,
) -> MixtureOfExperts:
    """The mixture a config states under the given keys; `shared` is the key for the number of shared experts,
    each as wide as a routed one. Raises ConfigError when more experts run than there are."""
    experts = config.integer(*count, maximum=65536)
    active = config.integer(*top_k)
    if active > experts:
        raise config.fail(top_k[0], f"{active} is more than the {experts} experts")
    width = config.integer(*inner)
    shared_count = config.integer(shared, default=default_shared, minimum=0, maximum=65536) if shared else 0
    return MixtureOfExperts(
        num_experts=experts, top_k=active, intermediate=width, shared_intermediate=width * shared_count
    )


def kinds(config: Config, key: str, count: int, allowed: Sequence[str]) -> tuple[str, ...]:
    """One text for each of `count` layers from a list that may be longer; empty where the key is absent.

    Raises ConfigError for a shorter list or a text that is not `allowed`.
    """
    texts = config.texts(key)
    if not texts:
        return ()
    _require_length(config, key, len(texts), count)
    for text in texts[:count]:
        if text not in allowed:
            raise config.fail(key, f"holds {text!r}, not one of {', '.join(allowed)}")
    return texts[:count]


def numbers(config: Config, key: str, count: int) -> tuple[int, ...]:
    """One whole number for each of `count` layers; empty where the key is absent. Raises ConfigError as `kinds`."""
    values = config.integers(key)
    if values:
        _require_length(config, key, len(values), count)
    return values[:count]


def _require_length(config: Config, key: str, length: int, count: int) -> None:
    if length < count:
        raise config.fail(key, f"has {length} entries for {count} layers")


def sparse_layers(config: Config, count: int, *, default_dense: int = 0) -> tuple[int, ...]:
    """Layers with a mixture: `mlp_layer_types`, else `moe_layer_freq` as a list, else DeepSeek's rule (from
    `first_k_dense_replace` on, every `moe_layer_freq`-th index)."""
    types = kinds(config, "mlp_layer_types", count, ("dense", "sparse"))
    if types:
        return tuple(index for index, kind in enumerate(types) if kind == "sparse")
    if isinstance(config.raw("moe_layer_freq"), list):
        flags = numbers(config, "moe_layer_freq", count)
        return tuple(index for index, flag in enumerate(flags) if flag)
    dense = config.integer("first_k_dense_replace", default=default_dense, minimum=0, maximum=MAX_LAYERS)
    step = config.integer("moe_layer_freq", default=1)
    return tuple(index for index in range(dense, count) if index % step == 0)


def attends(
    heads: Heads,
    *,
    bias: bool = False,
    o_bias: bool = False,
    qk_norm: bool = False,
    norm_names: tuple[str, str] = ("q_norm", "k_norm"),
) -> Callable[[Place], None]:
    """Lists `self_attn` with separate projections of these heads."""

    def attend(place: Place) -> None:
        attention(
            place,
            "self_attn",
            width=heads.width,
            heads=heads.heads,
            kv=heads.kv,
            head_dim=heads.head_dim,
            bias=bias,
            o_bias=o_bias,
            qk_norm=qk_norm,
            norm_names=norm_names,
        )

    return attend


def published_bf16(config: Config) -> DType:
    """The default element type of families whose weights are BF16 and whose config.json names none."""
    if "dtype" not in config and "torch_dtype" not in config:
        config.assume("config.json names no dtype: bfloat16 taken, as the published checkpoints are")
    return DType.BF16


class Draft(Struct, frozen=True, kw_only=True):
    """Next-token prediction layers stored after the last layer, in DeepSeek-V3's layout.

    `copies` where the block has its own embedding and head, `norm` the name of its last norm.
    """

    count: int
    mixer: TokenMixer
    copies: bool = False
    norm: str = "shared_head.norm"


def moe_decoder(
    config: Config,
    model_id: str,
    *,
    default_class: str,
    width: int,
    mixers: Sequence[TokenMixer],
    moe: MixtureOfExperts,
    attend: Callable[[Place], None],
    names: MoeNames = MoeNames(),  # noqa: B008 - a frozen value
    sparse: Sequence[int] | None = None,
    dense_inner: int = 0,
    dense_bias: bool = False,
    extra: Callable[[Place], None] | None = None,
    experts: Callable[[Place], None] | None = None,
    norm_bias: bool = False,
    head_bias: bool = False,
    positions: int,
    tied: bool = False,
    rope: tuple[Rope, ...] = (),
    draft: Draft | None = None,
    default_dtype: DType = DType.F32,
) -> Model:
    """A decoder in Llama's frame (`model.layers.{layer}.`, two norms) with a mixture in the `sparse` layers.

    `attend` lists a layer's attention, `experts` a mixture that `mixture` cannot express, `extra` whatever else a
    sparse layer holds. `sparse` None means every layer; the others have a dense MLP of `dense_inner`.
    """
    count = len(mixers)
    rows = config.integer("vocab_size")
    with_experts = tuple(range(count)) if sparse is None else tuple(sparse)
    dense = tuple(index for index in range(count) if index not in set(with_experts))
    tie = config.flag("tie_word_embeddings", default=tied)

    def block(layers: Place, sparse_part: Place) -> None:
        attend(layers)
        layers.norm("input_layernorm", width, bias=norm_bias)
        layers.norm("post_attention_layernorm", width, bias=norm_bias)
        if experts is None:
            mixture(sparse_part, moe, names, width=width)
        else:
            experts(sparse_part)
        if extra is not None:
            extra(sparse_part)

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    layer = root.at("model.layers.{layer}.", range(count))
    block(layer, root.at(layer.prefix, with_experts))
    if dense:
        gated_mlp(root.at(layer.prefix, dense), "mlp", width=width, inner=dense_inner, bias=dense_bias)
    root.final_norm("norm", width, bias=norm_bias)
    if not tie:
        root.at("").lm_head("lm_head", rows, width, bias=head_bias)

    draft_layers: tuple[Layer, ...] = ()
    if draft is not None and draft.count:
        indices = range(count, count + draft.count)
        place = root.at(layer.prefix, indices, component=Component.DRAFT)
        block(place, place)
        draft_input(place, width=width, norm=draft.norm)
        if draft.copies:
            place.embedding("embed_tokens", rows, width)
            place.lm_head("shared_head.head", rows, width)
        draft_layers = tuple(
            Layer(index=index, token_mixers=(draft.mixer,), channel_mixer=moe) for index in indices
        )

    return assemble(
        config,
        model_id,
        root,
        default_class=default_class,
        width=width,
        rows=rows,
        positions=positions,
        tied=tie,
        layers=moe_layers(mixers, moe, with_experts, dense_inner),
        rope=rope,
        draft_layers=draft_layers,
        default_dtype=default_dtype,
    )


def with_draft(model: Model, place: Place, layers: tuple[Layer, ...]) -> Model:
    """`model` with the draft layers whose tensors were listed into `place`, for layouts other than DeepSeek's."""
    return replace(model, tensors=model.tensors + tuple(place.into), draft_layers=layers)


def draft_input(place: Place, *, width: int, norm: str) -> None:
    """What turns an embedding and a hidden state into a draft layer's input (DeepSeek-V3 paper, section 2.2).

    Published FP8 checkpoints (DeepSeek-V3, GLM-5, MiMo-V2) leave the projection unquantised.
    """
    place.norm("enorm", width)
    place.norm("hnorm", width)
    place.linear("eh_proj", Role.OTHER, hidden(width), hidden(2 * width), quantizable=False)
    place.norm(norm, width)


def moe_layers(
    mixers: Sequence[TokenMixer], moe: MixtureOfExperts, sparse: Sequence[int], dense_inner: int
) -> tuple[Layer, ...]:
    """Layers with `moe` where listed in `sparse` and a gated MLP of `dense_inner` elsewhere."""
    chosen = set(sparse)
    plain = DenseMlp(intermediate=dense_inner, gated=True)
    channels: list[ChannelMixer] = [moe if index in chosen else plain for index in range(len(mixers))]
    return tuple(
        Layer(index=index, token_mixers=(mixer,), channel_mixer=channel)
        for index, (mixer, channel) in enumerate(zip(mixers, channels, strict=True))
    )
