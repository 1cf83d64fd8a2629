"""The vocabulary that architecture descriptions are written in: tensors of one place, block by block."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from vramledger.formats.dtypes import DType
from vramledger.models.tensors import (
    Axis,
    Component,
    Role,
    Stage,
    Tensor,
    experts,
    gate_up,
    hidden,
    intermediate,
    kv_heads,
    latent,
    q_heads,
    qkv_heads,
    vocab,
    whole,
)


class Place(Struct, kw_only=True):
    """Where tensors are being listed: a name prefix and the layers (or copies) it repeats over.

    Every method appends to the shared list `into`; `at(...)` gives a place beside this one.
    """

    into: list[Tensor] = field(default_factory=list)
    prefix: str = ""
    layers: tuple[int, ...] = ()
    copies: int = 1
    stage: Stage = Stage.FIRST
    component: Component = Component.DECODER

    def at(
        self,
        prefix: str,
        layers: Iterable[int] | None = None,
        *,
        copies: int | None = None,
        stage: Stage | None = None,
        component: Component | None = None,
    ) -> Place:
        """A place with another prefix. An empty `layers` gives a place that lists nothing."""
        return replace(
            self,
            prefix=prefix,
            layers=self.layers if layers is None else tuple(layers),
            copies=(self.copies if layers is None or tuple(layers) else 0) if copies is None else copies,
            stage=self.stage if stage is None else stage,
            component=self.component if component is None else component,
        )

    def tensor(
        self,
        name: str,
        role: Role,
        *axes: Axis,
        linear: bool = False,
        dtype: DType | None = None,
        parameter: bool = True,
    ) -> None:
        """One tensor; nothing where the place has no layers and no copies."""
        if not self.layers and self.copies == 0:
            return
        self.into.append(
            Tensor(
                name=self.prefix + name,
                role=role,
                axes=axes,
                layers=self.layers,
                copies=self.copies,
                stage=self.stage,
                component=self.component,
                linear=linear,
                dtype=dtype,
                parameter=parameter,
            )
        )

    def linear(
        self, name: str, role: Role, out: Axis, inp: Axis, *, bias: bool = False, quantizable: bool = True
    ) -> None:
        """`name.weight` of [out, inp], and `name.bias` of [out] where there is one."""
        self.tensor(f"{name}.weight", role, out, inp, linear=quantizable)
        if bias:
            self.tensor(f"{name}.bias", role, out)

    def norm(self, name: str, width: int | Axis, *, bias: bool = False) -> None:
        """A normalisation's weight (and bias). `width` is a number for a plain vector."""
        shape = whole(width) if isinstance(width, int) else width
        self.tensor(f"{name}.weight", Role.NORM, shape)
        if bias:
            self.tensor(f"{name}.bias", Role.NORM, shape)

    def embedding(self, name: str, rows: int, width: int) -> None:
        self.tensor(f"{name}.weight", Role.EMBEDDING, vocab(rows), hidden(width))

    def lm_head(self, name: str, rows: int, width: int, *, bias: bool = False) -> None:
        """The output head, on the last stage. Left out where it is tied."""
        last = self.at(self.prefix, stage=Stage.LAST)
        last.linear(name, Role.LM_HEAD, vocab(rows), hidden(width), bias=bias)

    def final_norm(self, name: str, width: int, *, bias: bool = False) -> None:
        self.at(self.prefix, stage=Stage.LAST).norm(name, width, bias=bias)


def attention(
    place: Place,
    name: str,
    *,
    width: int,
    heads: int,
    kv: int,
    head_dim: int,
    v_head_dim: int | None = None,
    bias: bool = False,
    o_bias: bool = False,
    qk_norm: bool = False,
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    norm_names: tuple[str, str] = ("q_norm", "k_norm"),
    k_bias: bool | None = None,
    output_gate: bool = False,
    out_width: int | None = None,
) -> None:
    """Grouped-query attention with separate projections; `qk_norm` is one weight of head_dim for each of q and k.

    `k_bias` where keys differ from queries and values (Whisper has none), `output_gate` doubles the query rows
    of each head by a gate (Qwen3-Next), `out_width` where the output is not as wide as the input (Zamba2).
    """
    v_dim = v_head_dim or head_dim
    q, k, v, o = (f"{name}.{part}" if name else part for part in names)
    q_dim = 2 * head_dim if output_gate else head_dim
    place.linear(q, Role.Q, q_heads(heads, q_dim), hidden(width), bias=bias)
    place.linear(k, Role.K, kv_heads(kv, head_dim), hidden(width), bias=bias if k_bias is None else k_bias)
    place.linear(v, Role.V, kv_heads(kv, v_dim), hidden(width), bias=bias)
    place.linear(o, Role.O, hidden(out_width or width), q_heads(heads, v_dim), bias=o_bias)
    if qk_norm:
        for norm in norm_names:
            place.norm(f"{name}.{norm}" if name else norm, head_dim)


def fused_attention(
    place: Place,
    qkv: str,
    out: str,
    *,
    width: int,
    heads: int,
    kv: int,
    head_dim: int,
    bias: bool = False,
    o_bias: bool = False,
) -> None:
    """Queries, keys and values in one matrix, both modules named in full.

    Some checkpoints interleave the three by head (Bloom, GPT-NeoX, InternLM2); the parts' sizes are the same.
    """
    place.linear(qkv, Role.QKV, qkv_heads(heads, kv, head_dim), hidden(width), bias=bias)
    place.linear(out, Role.O, hidden(width), q_heads(heads, head_dim), bias=o_bias)


def latent_attention(
    place: Place,
    name: str,
    *,
    width: int,
    heads: int,
    q_lora_rank: int,
    kv_lora_rank: int,
    nope_dim: int,
    rope_dim: int,
    v_head_dim: int,
    bias: bool = False,
) -> None:
    """Multi-head latent attention (DeepSeek-V2 paper, section 2.1); q_lora_rank 0 projects queries directly."""
    if q_lora_rank:
        place.linear(f"{name}.q_a_proj", Role.Q_A, latent(q_lora_rank), hidden(width), bias=bias)
        place.norm(f"{name}.q_a_layernorm", q_lora_rank)
        place.linear(f"{name}.q_b_proj", Role.Q_B, q_heads(heads, nope_dim + rope_dim), latent(q_lora_rank))
    else:
        place.linear(f"{name}.q_proj", Role.Q, q_heads(heads, nope_dim + rope_dim), hidden(width))
    place.linear(
        f"{name}.kv_a_proj_with_mqa", Role.KV_A, latent(kv_lora_rank + rope_dim), hidden(width), bias=bias
    )
    place.norm(f"{name}.kv_a_layernorm", kv_lora_rank)
    place.linear(f"{name}.kv_b_proj", Role.KV_B, q_heads(heads, nope_dim + v_head_dim), latent(kv_lora_rank))
    place.linear(f"{name}.o_proj", Role.O, hidden(width), q_heads(heads, v_head_dim), bias=bias)


def gated_mlp(
    place: Place,
    name: str,
    *,
    width: int,
    inner: int,
    bias: bool = False,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    roles: tuple[Role, Role, Role] = (Role.GATE, Role.UP, Role.DOWN),
) -> None:
    """Gate and up of [inner, width], down of [width, inner]."""
    gate, up, down = (f"{name}.{part}" for part in names)
    place.linear(gate, roles[0], intermediate(inner), hidden(width), bias=bias)
    place.linear(up, roles[1], intermediate(inner), hidden(width), bias=bias)
    place.linear(down, roles[2], hidden(width), intermediate(inner), bias=bias)


def fused_gated_mlp(
    place: Place,
    gate_up_name: str,
    down: str,
    *,
    width: int,
    inner: int,
    bias: bool = False,
) -> None:
    """Gate and up in one matrix of [2 x inner, width], both modules named in full."""
    place.linear(gate_up_name, Role.GATE_UP, gate_up(inner), hidden(width), bias=bias)
    place.linear(down, Role.DOWN, hidden(width), intermediate(inner), bias=bias)


SHARED = (Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN)


def plain_mlp(
    place: Place,
    up: str,
    down: str,
    *,
    width: int,
    inner: int,
    bias: bool = False,
) -> None:
    """One matrix up and one down, named in full."""
    place.linear(up, Role.UP, intermediate(inner), hidden(width), bias=bias)
    place.linear(down, Role.DOWN, hidden(width), intermediate(inner), bias=bias)


def routed_experts(
    place: Place,
    name: str,
    *,
    width: int,
    inner: int,
    count: int,
    gated: bool = True,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> None:
    """Experts stored one by one under `name.{expert}.`, as most checkpoints do."""
    gate, up, down = (f"{name}.{{expert}}.{part}.weight" for part in names)
    if gated:
        place.tensor(gate, Role.EXPERT_GATE, experts(count), intermediate(inner), hidden(width), linear=True)
    place.tensor(up, Role.EXPERT_UP, experts(count), intermediate(inner), hidden(width), linear=True)
    place.tensor(down, Role.EXPERT_DOWN, experts(count), hidden(width), intermediate(inner), linear=True)


def fused_experts(
    place: Place,
    name: str,
    *,
    width: int,
    inner: int,
    count: int,
    names: tuple[str, str] = ("gate_up_proj", "down_proj"),
    transposed: bool = False,
) -> None:
    """Experts stored as two 3-D tensors, [experts, out, in], or [experts, in, out] where `transposed`."""
    wide, narrow = (gate_up(inner), hidden(width)), (hidden(width), intermediate(inner))
    if transposed:
        wide, narrow = wide[::-1], narrow[::-1]
    place.tensor(f"{name}.{names[0]}", Role.EXPERT_GATE_UP, experts(count), *wide, linear=True)
    place.tensor(f"{name}.{names[1]}", Role.EXPERT_DOWN, experts(count), *narrow, linear=True)


def router(
    place: Place,
    name: str,
    *,
    width: int,
    count: int,
    correction_bias: str = "",
    dtype: DType | None = None,
) -> None:
    """The gate of a mixture; `correction_bias` names an fp32 buffer of one value an expert."""
    place.tensor(f"{name}.weight", Role.ROUTER, whole(count), hidden(width), dtype=dtype)
    if correction_bias:
        place.tensor(correction_bias, Role.ROUTER, whole(count), dtype=DType.F32, parameter=False)


def every_nth(count: int, step: int, offset: int) -> tuple[int, ...]:
    """Indices below `count` with index % step == offset."""
    return tuple(index for index in range(count) if index % step == offset % step)


def layers_of(types: Iterable[str], *wanted: str) -> tuple[int, ...]:
    """Indices whose type is one of `wanted`."""
    return tuple(index for index, kind in enumerate(types) if kind in wanted)
