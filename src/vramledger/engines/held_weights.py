"""Weights of one rank for engines that keep every tensor as the checkpoint stores it, cut for the rank."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from vramledger.engines.partition import Cuts, PipelineStage, local_sizes, repetitions
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Dense, WeightFormat, stored_bytes
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.model import tensor_group
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import Tensor

_SHOWN_SHAPES = 8


class HeldGroup(Struct, frozen=True, kw_only=True):
    """The tensors of one part of the model on one rank: their bytes, and the local shapes with how often each occurs."""

    name: str
    bytes: int
    shapes: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def formula(self) -> str:
        shown = [f"{count} x [{' x '.join(map(str, shape))}]" for count, shape in self.shapes[:_SHOWN_SHAPES]]
        more = len(self.shapes) - len(shown)
        return " + ".join(shown) + (f" + {more} more" if more > 0 else "") + f": {self.bytes} B"


class HeldWeights(Struct, frozen=True, kw_only=True):
    """What one rank keeps on its device."""

    groups: tuple[HeldGroup, ...]

    @property
    def total_bytes(self) -> int:
        return sum(group.bytes for group in self.groups)


def held_weights(
    checkpoint: Checkpoint,
    cuts: Cuts,
    stage: PipelineStage,
    *,
    format_of: Callable[[StoredTensor], WeightFormat],
    is_held: Callable[[Tensor], bool],
    sizes_of: Callable[[Tensor, Cuts], list[int]] = local_sizes,
) -> HeldWeights:
    """Sum over the checkpoint's tensors of the bytes of their local shape in the format the engine keeps them in.

    Raises FlagError where a plan does not divide the model.
    """
    tied = checkpoint.model.tie_word_embeddings
    sums: dict[str, int] = {}
    shapes: dict[str, dict[tuple[int, ...], int]] = {}
    for item in checkpoint.stored:
        tensor = item.tensor
        if not is_held(tensor):
            continue
        count = repetitions(tensor, stage, tied=tied)
        if not count:
            continue
        shape = tuple(sizes_of(tensor, cuts))
        name = tensor_group(tensor).replace("_", " ")
        sums[name] = sums.get(name, 0) + count * stored_bytes(shape, format_of(item))
        found = shapes.setdefault(name, {})
        found[shape] = found.get(shape, 0) + count
    return HeldWeights(
        groups=tuple(
            HeldGroup(
                name=name,
                bytes=size,
                shapes=tuple((count, shape) for shape, count in shapes[name].items()),
            )
            for name, size in sums.items()
        )
    )


def retyped(item: StoredTensor, model_dtype: DType, dtype: DType) -> WeightFormat:
    """The stored format with elements of the model's own type held as `dtype`; others stay what they are."""
    stored = item.format
    if isinstance(stored, Dense) and stored.dtype is model_dtype:
        return Dense(dtype=dtype)
    return stored
