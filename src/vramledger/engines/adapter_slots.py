"""What adapters take on one rank, whatever the engine: at their own rank, and in slots of one rank for all.

An engine brings how it cuts an axis (`Local`); A of [rank, in] and B of [out, rank] follow the base matrix: where
the input is cut A is, where the output is cut B is, and the other one is whole on every rank.
Source: S-LoRA (arXiv 2311.03285); vllm lora/layers; sglang lora/mem_pool.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.option import Option, bad_value
from vramledger.formats.weights import Dense, WeightFormat, format_label, stored_bytes
from vramledger.models.tensors import Tensor

if TYPE_CHECKING:
    from vramledger.models.adapters.adapter import Adapter
    from vramledger.models.adapters.placing import PlacedAdapter, PlacedPair
    from vramledger.models.checkpoint import Checkpoint

Local = Callable[[Tensor, int], int]
"""Positions of an axis of a tensor (0 is the first one) that the rank holds."""


class SlotModule(Struct, frozen=True, kw_only=True):
    """Modules alike that get a slot: `repeat` of them on the rank, each with `parts` A matrices over `d_in`
    inputs and B matrices over `d_out` outputs in all, once for each of `experts`. `a_ways` ranks share the rows
    of A, which the rank must divide by."""

    name: str
    repeat: int
    parts: int
    d_in: int
    d_out: int
    experts: int = 1
    a_ways: int = 1

    def elements(self, rank: int) -> int:
        """Elements of one slot of this rank, all repetitions."""
        first = self.parts * (rank // self.a_ways) * self.d_in
        return self.repeat * self.experts * (first + rank * self.d_out)


def slot_elements(modules: Iterable[SlotModule], rank: int) -> int:
    """Elements of one slot over all modules."""
    return sum(module.elements(rank) for module in modules)


def pair_elements(pair: PlacedPair, local: Local, *, layers: range | None = None) -> int:
    """Elements of a pair on one rank, at the pair's own rank; `layers` are the stage's (None: all).

    What lies outside the layers counts whole; which stage has it is the engine's to say.
    """
    first = pair.tensor
    count = len(pair.layers) if layers is None else sum(layer in layers for layer in pair.layers)
    if not pair.layers:
        count = 1
    if first.num_experts:
        here = local(first, 0) * pair.experts // first.num_experts
        out = sum(local(tensor, 1) for tensor in pair.tensors)
        return count * here * pair.rank * (local(first, 2) + out)
    return count * pair.rank * (local(first, 0) + local(first, 1))


def adapter_elements(pairs: Iterable[PlacedPair], local: Local, *, layers: range | None = None) -> int:
    """Elements of an adapter's pairs on one rank, at their own ranks, without padding."""
    return sum(pair_elements(pair, local, layers=layers) for pair in pairs)


def read_adapters(option: Option, value: object) -> tuple[Adapter, ...]:
    """The adapters an option names: paths and hub ids as text, or adapters that were read already.

    Raises what load_adapter raises, FlagError for anything else.
    """
    from vramledger.models.adapters.adapter import Adapter
    from vramledger.models.adapters.load import load_adapter

    given = (value,) if isinstance(value, str | Adapter) else value
    if isinstance(given, list | tuple) and given and all(isinstance(item, str | Adapter) for item in given):
        return tuple(item if isinstance(item, Adapter) else load_adapter(item) for item in given)
    raise bad_value(option, value, "is not the place of an adapter, or several")


def smallest_allowed(rank: int, allowed: Sequence[int]) -> int | None:
    """The smallest allowed slot rank that holds `rank`, None where none does."""
    return min((choice for choice in allowed if choice >= rank), default=None)


class MergedCopy(Struct, frozen=True, kw_only=True):
    """What serving an adapter merged into its own copy of the matrices it touches would take.

    `stored_bytes` is that copy over all ranks, in the base's formats. `quantised` names the formats that a merge
    would have to be requantised to; the copy is otherwise as exact as the base.
    """

    stored_bytes: int
    touched_elements: int
    quantised: tuple[str, ...]


def merged_copy(placed: PlacedAdapter, checkpoint: Checkpoint) -> MergedCopy:
    """The copy of every base matrix that the adapter touches; an expert without a pair is not copied."""
    formats: dict[Tensor, list[tuple[frozenset[int], WeightFormat]]] = {}
    for item in checkpoint.stored:
        plain = _without_layers(item.tensor)
        formats.setdefault(plain, []).append((frozenset(item.tensor.layers), item.format))
    size = elements = 0
    quantised: dict[str, None] = {}
    for pair in placed.pairs:
        for tensor in pair.tensors:
            matrix = tensor.shape[1:] if tensor.num_experts else tensor.shape
            for layers, kind in formats.get(_without_layers(tensor), ()):
                count = sum(layer in layers for layer in pair.layers) if pair.layers and layers else 1
                modules = count * max(pair.experts, 1)
                size += modules * stored_bytes(matrix, kind)
                elements += modules * matrix[0] * matrix[1]
                if not isinstance(kind, Dense):
                    quantised[format_label(kind)] = None
    return MergedCopy(stored_bytes=size, touched_elements=elements, quantised=tuple(quantised))


def _without_layers(tensor: Tensor) -> Tensor:
    return replace(tensor, layers=(), dtype=None)
