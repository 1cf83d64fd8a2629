"""The skeleton most decoders share: embedding, layers, last norm, output head."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.models.blocks import Place, attention, fused_attention, gated_mlp, plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import (
    Heads,
    assemble,
    full_attention,
    heads_from_config,
    layers_of_mixers,
    uniform_layers,
)
from vramledger.models.mixers import DenseMlp, Layer, TokenMixer
from vramledger.models.model import Model, Rope
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, Stage, hidden, whole


class Names(Struct, frozen=True, kw_only=True):
    """What a checkpoint calls the parts around the layers. `base` is left out by a class without a head."""

    base: str = "model."
    embedding: str = "embed_tokens"
    layer: str = "layers.{layer}."
    norm: str = "norm"
    head: str = "lm_head"


class Skeleton(Struct, frozen=True, kw_only=True):
    """A decoder being described: `root` and `layer` are the places its tensors are listed at.

    `head` is "lm_head" (a language model), "score" (a sequence classifier) or "" (embeddings only).
    """

    config: Config
    default_class: str
    names: Names
    heads: Heads
    count: int
    rows: int
    positions: int
    tied: bool
    head: str
    root: Place
    layer: Place

    def attention(
        self,
        name: str = "self_attn",
        *,
        bias: bool = False,
        o_bias: bool = False,
        qk_norm: bool = False,
        names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
        norm_names: tuple[str, str] = ("q_norm", "k_norm"),
        place: Place | None = None,
        heads: Heads | None = None,
    ) -> None:
        """Separate projections of this decoder's heads, in every layer unless `place` says which."""
        shape = heads or self.heads
        attention(
            place or self.layer,
            name,
            width=shape.width,
            heads=shape.heads,
            kv=shape.kv,
            head_dim=shape.head_dim,
            bias=bias,
            o_bias=o_bias,
            qk_norm=qk_norm,
            names=names,
            norm_names=norm_names,
        )

    def fused_attention(self, qkv: str, out: str, *, bias: bool = False, o_bias: bool = False) -> None:
        fused_attention(
            self.layer,
            qkv,
            out,
            width=self.heads.width,
            heads=self.heads.heads,
            kv=self.heads.kv,
            head_dim=self.heads.head_dim,
            bias=bias,
            o_bias=o_bias,
        )

    def norms(self, *names: str, bias: bool = False) -> None:
        """Normalisations over the hidden width, in every layer."""
        for name in names:
            self.layer.norm(name, self.heads.width, bias=bias)

    def uniform(self, channel: DenseMlp, mixer: TokenMixer | None = None) -> tuple[Layer, ...]:
        """Equal layers, of full attention unless `mixer` says otherwise."""
        return uniform_layers(self.count, mixer or full_attention(self.heads), channel)

    def rope(self, *, rotary: int | None = None, layer_type: str = "") -> Rope:
        return rope_from_config(
            self.config,
            self.heads.head_dim,
            max_positions=self.positions,
            rotary=rotary,
            layer_type=layer_type,
        )

    def finish(
        self,
        model_id: str,
        layers: tuple[Layer, ...],
        *,
        rope: tuple[Rope, ...] = (),
        final_norm: bool = True,
        norm_bias: bool = False,
        head_bias: bool = False,
    ) -> Model:
        """Last norm, head (unless tied) and the model itself."""
        width = self.heads.width
        if final_norm:
            self.root.final_norm(self.names.norm, width, bias=norm_bias)
        if self.head == "score":
            last = self.root.at("", stage=Stage.LAST)
            last.linear(
                "score", Role.LM_HEAD, whole(self.config.num_labels()), hidden(width), quantizable=False
            )
        elif self.head and not self.tied:
            self.root.at("").lm_head(self.names.head, self.rows, width, bias=head_bias)
        return assemble(
            self.config,
            model_id,
            self.root,
            default_class=self.default_class,
            width=width,
            rows=self.rows,
            positions=self.positions,
            tied=self.tied,
            layers=layers,
            rope=rope,
            is_pooling=self.head != "lm_head",
        )


def skeleton(
    config: Config,
    default_class: str,
    *,
    names: Names | None = None,
    heads: Heads | None = None,
    count: int | None = None,
    rows: int | None = None,
    positions: int | None = None,
    tied: bool = False,
    head: str | None = None,
) -> Skeleton:
    """A decoder with its embedding listed. What is not given is read under Llama's key names.

    `tied` is the class default of tie_word_embeddings. A class called ...Model is the base model alone: it
    has no head and its checkpoint has no `names.base` (`head` overrides that reading).
    """
    kind = _head(config) if head is None else head
    called = names or Names()
    base = called.base if kind else ""
    shape = heads or heads_from_config(config)
    layers = config.num_layers() if count is None else count
    size = config.integer("vocab_size") if rows is None else rows
    if positions is None:
        config = config.with_defaults(f"{default_class}'s config", max_position_embeddings=2048)
        positions = config.integer("max_position_embeddings")
    root = Place(prefix=base)
    root.embedding(called.embedding, size, shape.width)
    return Skeleton(
        config=config,
        default_class=default_class,
        names=called,
        heads=shape,
        count=layers,
        rows=size,
        positions=positions,
        tied=config.flag("tie_word_embeddings", default=tied),
        head=kind,
        root=root,
        layer=root.at(base + called.layer, range(layers)),
    )


def gated_decoder(
    config: Config,
    model_id: str,
    default_class: str,
    *,
    tied: bool = False,
    heads: Heads | None = None,
    bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    qk_norm_names: tuple[str, str] = ("q_norm", "k_norm"),
    norms: Sequence[str] = ("input_layernorm", "post_attention_layernorm"),
    norm_bias: bool = False,
    mixers: Sequence[TokenMixer] | None = None,
    rope: tuple[Rope, ...] | None = None,
) -> Model:
    """Llama's layer under Llama's names: four projections, a gated MLP, norms. The rest are its variations."""
    frame = skeleton(config, default_class, heads=heads, tied=tied)
    frame.attention(bias=bias, o_bias=o_bias, qk_norm=qk_norm, norm_names=qk_norm_names)
    inner = config.integer("intermediate_size")
    gated_mlp(frame.layer, "mlp", width=frame.heads.width, inner=inner, bias=mlp_bias)
    frame.norms(*norms, bias=norm_bias)
    channel = DenseMlp(intermediate=inner, gated=True)
    layers = frame.uniform(channel) if mixers is None else layers_of_mixers(mixers, channel)
    return frame.finish(model_id, layers, rope=(frame.rope(),) if rope is None else rope, norm_bias=norm_bias)


def plain_decoder(
    config: Config,
    model_id: str,
    default_class: str,
    *,
    heads: Heads | None = None,
    bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    mlp_names: tuple[str, str] = ("mlp.up_proj", "mlp.down_proj"),
    norm_bias: bool = False,
    mixers: Sequence[TokenMixer] | None = None,
) -> Model:
    """Llama's frame around an MLP of one matrix up and one down."""
    frame = skeleton(config, default_class, heads=heads)
    frame.attention(bias=bias, o_bias=o_bias)
    inner = config.integer("intermediate_size")
    plain_mlp(frame.layer, *mlp_names, width=frame.heads.width, inner=inner, bias=mlp_bias)
    frame.norms("input_layernorm", "post_attention_layernorm", bias=norm_bias)
    channel = DenseMlp(intermediate=inner, gated=False)
    layers = frame.uniform(channel) if mixers is None else layers_of_mixers(mixers, channel)
    return frame.finish(model_id, layers, rope=(frame.rope(),), norm_bias=norm_bias)


def _head(config: Config) -> str:
    classes = config.texts("architectures")
    name = classes[0] if classes else ""
    if name.endswith("ForSequenceClassification"):
        return "score"
    if name.endswith("Model") and not name.endswith("LMHeadModel"):
        return ""
    if name and not name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        config.assume(f"{name} is described as a language model of its type, whatever head it has")
    return "lm_head"
