"""A model's tensors by role, shape and count, without saying how an engine splits them.

Each axis says what it counts (`q_heads`, `intermediate`, `vocab`, ...) and in how many indivisible units, so
that an engine can apply its own rule to the kind of axis and needs no list of tensor names.
"""

from __future__ import annotations

from enum import StrEnum
from math import prod

from msgspec import Struct

from vramledger.formats.dtypes import DType


class AxisKind(StrEnum):
    """What the positions along an axis are."""

    HIDDEN = "hidden"
    VOCAB = "vocab"
    POSITION = "position"
    Q_HEADS = "q_heads"
    KV_HEADS = "kv_heads"
    INTERMEDIATE = "intermediate"
    EXPERTS = "experts"
    LATENT = "latent"
    SSM_HEADS = "ssm_heads"
    SSM_GROUPS = "ssm_groups"
    OTHER = "other"


class Part(Struct, frozen=True):
    """A run along an axis. `units` is how many pieces it may be cut into (heads, groups, experts, columns)."""

    kind: AxisKind
    size: int
    units: int


Axis = tuple[Part, ...]


class Component(StrEnum):
    """Which of a model's networks a tensor belongs to."""

    DECODER = "decoder"
    ENCODER = "encoder"
    VISION = "vision"
    AUDIO = "audio"
    PROJECTOR = "projector"
    DRAFT = "draft"


class Role(StrEnum):
    """What a tensor does; engines fuse (Q, K, V) and (GATE, UP) and place adapters by it."""

    EMBEDDING = "embedding"
    POSITION_EMBEDDING = "position_embedding"
    LM_HEAD = "lm_head"
    NORM = "norm"
    Q = "q"
    K = "k"
    V = "v"
    QKV = "qkv"
    O = "o"  # noqa: E741 - the field's name for the output projection
    Q_A = "q_a"
    Q_B = "q_b"
    KV_A = "kv_a"
    KV_B = "kv_b"
    INDEXER = "indexer"
    SINKS = "sinks"
    GATE = "gate"
    UP = "up"
    GATE_UP = "gate_up"
    DOWN = "down"
    ROUTER = "router"
    EXPERT_GATE = "expert_gate"
    EXPERT_UP = "expert_up"
    EXPERT_GATE_UP = "expert_gate_up"
    EXPERT_DOWN = "expert_down"
    SHARED_GATE = "shared_gate"
    SHARED_UP = "shared_up"
    SHARED_GATE_UP = "shared_gate_up"
    SHARED_DOWN = "shared_down"
    SSM_IN = "ssm_in"
    SSM_CONV = "ssm_conv"
    SSM_OUT = "ssm_out"
    SSM_PARAM = "ssm_param"
    PROJECTOR = "projector"
    OTHER = "other"


class Stage(StrEnum):
    """Where a tensor without a layer index sits in a pipeline."""

    FIRST = "first"
    LAST = "last"
    EVERY = "every"


class Tensor(Struct, frozen=True, kw_only=True):
    """One tensor, repeated over `layers` (decoder or encoder layer indices) or `copies` times elsewhere.

    `name` is the checkpoint's own, with `{layer}`, `{block}` (of a tower) and `{expert}` for indices; a
    tensor whose checkpoint stores experts one by one still has the experts as its first axis. `linear`
    marks a matrix that a quantised checkpoint may store in another format. `dtype` is set only where it is
    not the model's own. `parameter` is False for buffers that a checkpoint carries.
    """

    name: str
    role: Role
    axes: tuple[Axis, ...]
    layers: tuple[int, ...] = ()
    copies: int = 1
    stage: Stage = Stage.FIRST
    component: Component = Component.DECODER
    linear: bool = False
    dtype: DType | None = None
    parameter: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(sum(part.size for part in axis) for axis in self.axes)

    @property
    def elements(self) -> int:
        """Elements of one repetition."""
        return prod(self.shape)

    @property
    def repetitions(self) -> int:
        return len(self.layers) if self.layers else self.copies

    @property
    def total_elements(self) -> int:
        return self.elements * self.repetitions

    @property
    def num_experts(self) -> int:
        """Size of the experts axis, 0 where there is none."""
        first = self.axes[0] if self.axes else ()
        return first[0].size if first and first[0].kind is AxisKind.EXPERTS else 0

    @property
    def module(self) -> str:
        """The module's path: the name without its last part."""
        return self.name.rpartition(".")[0] if self.name.endswith((".weight", ".bias")) else self.name


def axis(kind: AxisKind, size: int, units: int | None = None) -> Axis:
    """One part, by default divisible at every position."""
    return (Part(kind, size, size if units is None else units),)


def hidden(size: int) -> Axis:
    return axis(AxisKind.HIDDEN, size)


def vocab(rows: int) -> Axis:
    return axis(AxisKind.VOCAB, rows)


def q_heads(heads: int, head_dim: int) -> Axis:
    return axis(AxisKind.Q_HEADS, heads * head_dim, heads)


def kv_heads(heads: int, head_dim: int) -> Axis:
    return axis(AxisKind.KV_HEADS, heads * head_dim, heads)


def qkv_heads(heads: int, kv: int, head_dim: int, v_head_dim: int | None = None) -> Axis:
    """The output of a fused query, key and value projection."""
    return q_heads(heads, head_dim) + kv_heads(kv, head_dim) + kv_heads(kv, v_head_dim or head_dim)


def intermediate(size: int) -> Axis:
    return axis(AxisKind.INTERMEDIATE, size)


def gate_up(size: int) -> Axis:
    """The output of a fused gate and up projection of `size` each."""
    return intermediate(size) + intermediate(size)


def experts(count: int) -> Axis:
    return axis(AxisKind.EXPERTS, count)


def latent(size: int) -> Axis:
    """A low-rank width that every rank keeps whole."""
    return axis(AxisKind.LATENT, size)


def ssm_heads(heads: int, head_dim: int = 1) -> Axis:
    """Recurrent channels that belong to heads."""
    return axis(AxisKind.SSM_HEADS, heads * head_dim, heads)


def ssm_groups(groups: int, width: int) -> Axis:
    """Recurrent channels shared by a group of heads (B, C; linear-attention keys)."""
    return axis(AxisKind.SSM_GROUPS, groups * width, groups)


def whole(size: int) -> Axis:
    """An axis nobody splits (head widths, kernel sizes, towers' own widths)."""
    return axis(AxisKind.OTHER, size)
