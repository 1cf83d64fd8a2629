"""Described tensors cut to the indices under which something is held."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from msgspec.structs import replace

from vramledger.models.headers.counting import Placed, matrix_of
from vramledger.models.headers.parts import first_indices
from vramledger.models.quantization import StoredTensor


def lots_of(claims: Sequence[Placed]) -> list[tuple[Placed, ...]]:
    """Claims apart where their first indices are; those of unknown indices with all others."""
    firsts = [first_indices(item.tensor) for _, item in claims]
    if any(first is None for first in firsts):
        return [tuple(claims)]
    lots: list[tuple[frozenset[int], list[Placed]]] = []
    for claim, first in zip(claims, firsts, strict=True):
        assert first is not None
        joined, rest = [claim], []
        covered = first
        for indices, members in lots:
            if indices & first or (not indices and not first):
                covered |= indices
                joined = members + joined
            else:
                rest.append((indices, members))
        lots = [*rest, (covered, joined)]
    return [tuple(members) for _, members in lots]


def share(
    item: StoredTensor, numbers: set[int], matrices: Fraction, *, fused: bool
) -> tuple[StoredTensor | None, StoredTensor | None, Fraction]:
    """Split a claim into what lies under these indices and the rest; `matrices` is what is still unclaimed there."""
    tensor = item.tensor
    if tensor.layers and "{layer}" in tensor.name:
        inside = tuple(layer for layer in tensor.layers if layer in numbers)
        outside = tuple(layer for layer in tensor.layers if layer not in numbers)
        return _with_layers(item, inside), _with_layers(item, outside), matrices
    each, _ = matrix_of(tensor)
    first = first_indices(tensor)
    if tensor.copies == 1 or (fused and first is not None):
        is_here = not first or bool(first & numbers)
        return (item, None, matrices) if is_here else (None, item, matrices)
    copies = min(tensor.copies, len(numbers) if fused else int(matrices // each))
    return _with_copies(item, copies), _with_copies(item, tensor.copies - copies), matrices - copies * each


def _with_layers(item: StoredTensor, layers: tuple[int, ...]) -> StoredTensor | None:
    if not layers:
        return None
    return item if layers == item.tensor.layers else replace(item, tensor=replace(item.tensor, layers=layers))


def _with_copies(item: StoredTensor, copies: int) -> StoredTensor | None:
    if copies <= 0:
        return None
    return item if copies == item.tensor.copies else replace(item, tensor=replace(item.tensor, copies=copies))
