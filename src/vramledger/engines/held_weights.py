"""Weights of one rank for engines that keep every tensor as the checkpoint stores it, cut for the rank."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from vramledger.engines.partition import Cuts, PipelineStage, local_sizes, repetitions
from vramledger.evidence import assumed, calculated
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Dense, WeightFormat, stored_bytes
from vramledger.ledger import ByteRange, WeightFigures
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.model import tensor_group
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import Tensor
from vramledger.units import GIB

DEFAULT_SHARD_BYTES = 5 * 10**9
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


def weight_figures(checkpoint: Checkpoint, device_bytes: int) -> WeightFigures:
    """On disk, at most on the host while loading, and steady on one device.

    Files are mapped one at a time; the page cache may keep anything from a gibibyte to all of them.
    """
    disk, largest = checkpoint.disk_bytes, checkpoint.largest_file_bytes
    mapped = largest or min(disk, DEFAULT_SHARD_BYTES)
    size = f"{DEFAULT_SHARD_BYTES // 10**9} GB"
    evidence = (
        calculated("largest weight file, mapped while it is read", f"{largest} B")
        if largest
        else assumed(f"weight files of {size}, Transformers' default; headers would tell")
    )
    return WeightFigures(
        disk_bytes=disk,
        disk_evidence=checkpoint.disk_evidence,
        host_peak_bytes=ByteRange(min(mapped, GIB), mapped, max(disk, mapped)),
        host_evidence=evidence,
        device_bytes=ByteRange.exact(device_bytes),
    )


def retyped(item: StoredTensor, model_dtype: DType, dtype: DType) -> WeightFormat:
    """The stored format with elements of the model's own type held as `dtype`; others stay what they are."""
    stored = item.format
    if isinstance(stored, Dense) and stored.dtype is model_dtype:
        return Dense(dtype=dtype)
    return stored
