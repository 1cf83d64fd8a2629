"""Which part of each tensor a rank holds: plain rules on kinds of axes, roles and places in a pipeline.

What the parallel layers of serving engines have in common (Megatron-LM, Shoeybi et al. 2019, section 3): heads,
MLP columns and vocabulary rows are cut evenly, KV heads are cut or repeated, latents are kept whole, experts are
dealt out. An engine says by `Cuts` into how many parts each kind is cut on one rank, by `PipelineStage` which layers
the rank has, and keeps what its own classes do otherwise to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from vramledger.errors import FlagError
from vramledger.models.tensors import AxisKind, Component, Part, Role, Stage, Tensor
from vramledger.units import round_up

TOWERS = (Component.VISION, Component.AUDIO, Component.PROJECTOR)
SHARED_EXPERTS = frozenset({Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_GATE_UP, Role.SHARED_DOWN})
VOCAB_PADDING = 64


class Cuts(Struct, frozen=True, kw_only=True):
    """Into how many parts one rank's share is one, by what is cut.

    `attention` cuts query, KV and recurrent heads; `dense` the columns of MLPs, `shared` those of shared experts;
    `vocab` the padded rows of embedding and head; `expert_width` the columns inside an expert. The experts of a layer,
    `redundant_experts` copies among them, are dealt to `expert_ranks`, of which this is number `expert_rank`.
    `towers` cuts encoders and projectors, None keeps them whole. Errors name `flag` (as Python spells it).
    """

    attention: int = 1
    dense: int = 1
    shared: int = 1
    vocab: int = 1
    vocab_padding: int = VOCAB_PADDING
    expert_width: int = 1
    expert_ranks: int = 1
    expert_rank: int = 0
    redundant_experts: int = 0
    towers: int | None = 1
    flag: str = "tensor_parallel_size"

    @classmethod
    def tensor_parallel(cls, tp: int, *, flag: str = "tensor_parallel_size") -> Cuts:
        """Everything cut into `tp` parts, experts by their columns."""
        return cls(attention=tp, dense=tp, shared=tp, vocab=tp, expert_width=tp, towers=tp, flag=flag)


class PipelineStage(Struct, frozen=True, kw_only=True):
    """The decoder layers of one pipeline stage, and whether it has either end of the model."""

    layers: range
    is_first: bool
    is_last: bool


def stage_ranges(counts: Sequence[int]) -> list[range]:
    """Consecutive layer ranges of stages that hold so many layers each."""
    edges = [sum(counts[:index]) for index in range(len(counts) + 1)]
    return [range(start, end) for start, end in pairwise(edges)]


def given_stages(num_layers: int, pp: int, partition: Sequence[int], *, flag: str) -> list[range]:
    """Stages by a partition somebody wrote down. Raises FlagError where it does not add up."""
    if len(partition) != pp or sum(partition) != num_layers or min(partition) < 0:
        raise FlagError(
            f"--{flag.replace('_', '-')} {','.join(map(str, partition))} does not give {num_layers} layers to {pp} stages",
            flag=flag,
            value=tuple(partition),
        )
    return stage_ranges(partition)


def dealt(count: int, ranks: int, rank: int) -> int:
    """How many of `count` things rank number `rank` of `ranks` gets; the first ranks get one more."""
    return count // ranks + (1 if rank < count % ranks else 0)


def local_experts(num_experts: int, cuts: Cuts) -> int:
    """Experts of one layer on a rank, copies included; all of them where they are not dealt out."""
    if cuts.expert_ranks == 1:
        return num_experts
    return dealt(num_experts + cuts.redundant_experts, cuts.expert_ranks, cuts.expert_rank)


def local_kv_heads(kv_heads: int, ways: int, *, flag: str = "tensor_parallel_size") -> int:
    """KV heads a rank keeps: divided, or one where there are more ranks than heads.

    Raises FlagError where neither number divides the other.
    """
    if kv_heads % ways == 0:
        return kv_heads // ways
    if ways % kv_heads == 0:
        return 1
    raise FlagError(
        f"{kv_heads} KV heads of the model neither divide by {_spelled(flag)} {ways} nor divide it",
        flag=flag,
        value=ways,
    )


def divided(count: int, ways: int, what: str, *, flag: str = "tensor_parallel_size") -> int:
    """count / ways, or a FlagError that names `what`."""
    if count % ways:
        raise FlagError(
            f"{count} {what} of the model do not divide by {_spelled(flag)} {ways}", flag=flag, value=ways
        )
    return count // ways


def extended_groups(groups: int, ways: int) -> int:
    """Groups of recurrent heads after replication to a multiple that `ways` divides."""
    return groups if groups % ways == 0 else groups + (ways - groups)


def local_part(part: Part, tensor: Tensor, cuts: Cuts) -> int:
    """Positions of one axis part that a rank holds; a tower's part that does not divide is kept whole.

    Raises FlagError, naming the tensor, where a number of parts does not divide what it must.
    """
    if tensor.component in TOWERS:
        if cuts.towers is None or part.units % cuts.towers:
            return part.size
        attention = dense = vocab = cuts.towers
    else:
        attention, vocab = cuts.attention, cuts.vocab
        dense = cuts.shared if tensor.role in SHARED_EXPERTS else cuts.dense
    match part.kind:
        case AxisKind.VOCAB if tensor.role in (Role.EMBEDDING, Role.LM_HEAD):
            rows = round_up(part.size, cuts.vocab_padding)
            if rows % vocab:
                raise _indivisible(tensor, rows, vocab, cuts.flag)
            return rows // vocab
        case AxisKind.KV_HEADS:
            return local_kv_heads(part.units, attention, flag=cuts.flag) * (part.size // part.units)
        case AxisKind.Q_HEADS | AxisKind.SSM_HEADS:
            if part.units % attention:
                raise _indivisible(tensor, part.units, attention, cuts.flag)
            return part.size // attention
        case AxisKind.INTERMEDIATE:
            ways = cuts.expert_width if tensor.num_experts else dense
            if part.size % ways:
                raise _indivisible(tensor, part.size, ways, cuts.flag)
            return part.size // ways
        case AxisKind.SSM_GROUPS:
            width = part.size // part.units
            return extended_groups(part.units, attention) * width // attention
        case AxisKind.EXPERTS:
            return local_experts(part.size, cuts)
        case _:
            return part.size


def local_sizes(tensor: Tensor, cuts: Cuts) -> list[int]:
    """The local shape of a tensor. Raises FlagError as `local_part` does."""
    return [
        local_part(axis[0], tensor, cuts)
        if len(axis) == 1
        else sum(local_part(part, tensor, cuts) for part in axis)
        for axis in tensor.axes
    ]


def repetitions(tensor: Tensor, stage: PipelineStage, *, tied: bool) -> int:
    """How many of a tensor's repetitions a stage holds.

    Layers are where they are, drafts on the last stage; a tied embedding also sits on the last stage, where it is the
    head; encoders and their projectors sit on every stage.
    """
    if tensor.component in TOWERS:
        return tensor.repetitions
    if tensor.component is Component.DRAFT:
        return tensor.repetitions if stage.is_last else 0
    if tensor.layers and tensor.component is Component.DECODER:
        if stage.is_first and stage.is_last:
            return len(tensor.layers)
        return sum(layer in stage.layers for layer in tensor.layers)
    if tensor.stage is Stage.EVERY:
        return tensor.repetitions
    if tensor.stage is Stage.LAST:
        return tensor.repetitions if stage.is_last else 0
    if stage.is_first or (tied and stage.is_last and tensor.role is Role.EMBEDDING):
        return tensor.repetitions
    return 0


def _spelled(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"


def _indivisible(tensor: Tensor, size: int, ways: int, flag: str) -> FlagError:
    module = tensor.name.replace("{layer}", "*").replace("{expert}", "*").replace("{block}", "*")
    return FlagError(
        f"{_spelled(flag)}: {size} of {module} cannot be cut into {ways} equal parts", flag=flag, value=ways
    )
