"""Parts that a description expects and parts that headers hold, counted in the same terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import prod

from vramledger.errors import UnknownFormat
from vramledger.formats.weights import Ggml, Shape, WeightFormat, stored_parts
from vramledger.models.headers.parts import MAIN, QUANT_STATE, Held, plain_shape
from vramledger.models.headers.reading import CodedParts, element_type
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import Tensor

Placed = tuple[int, StoredTensor]
"""A stored tensor with its place in the description."""

PartKey = tuple[str, str, Shape]
"""Part, element type, and shape as `plain_shape` gives it."""


def matrix_of(tensor: Tensor) -> tuple[int, Shape]:
    """How many matrices a tensor stacks for its experts, and the shape of one."""
    if tensor.num_experts and len(tensor.shape) > 2:
        return tensor.num_experts, tensor.shape[1:]
    return 1, tensor.shape


def expected_parts(item: StoredTensor) -> list[tuple[PartKey, int, Shape]]:
    """Parts of a stored tensor over all its repetitions: key, count, shape as described.

    A GGUF header states a block type's shape in elements.
    """
    stack, shape = matrix_of(item.tensor)
    copies = stack * item.tensor.repetitions
    if isinstance(item.format, Ggml):
        return [((".weight", item.format.type.name, plain_shape(shape)), copies, shape)]
    out = []
    for part in stored_parts(shape, item.format):
        text = part.suffix.startswith(QUANT_STATE)
        out.append(
            ((part.suffix, str(part.dtype), () if text else plain_shape(part.shape)), copies, part.shape)
        )
    return out


def held_key(suffix: str, code: str, shape: Shape, stack: int) -> tuple[PartKey, int]:
    """A row's part as `expected_parts` keys it, and how many matrices' parts one tensor holds."""
    times = 1
    if stack and shape and shape[0] == stack:
        times, shape = stack, shape[1:]
    is_text = suffix.startswith(QUANT_STATE)
    return (suffix, str(element_type(code)), () if is_text else plain_shape(shape)), times


def stack_length(claims: Sequence[Placed], parts: Iterable[tuple[str, Shape]]) -> int:
    """The length of the experts' axis where experts lie in one tensor, else 0."""
    if not any(item.tensor.num_experts and len(item.tensor.shape) > 2 for _, item in claims):
        return 0
    for suffix, shape in parts:
        if suffix in MAIN and len(shape) > 2:
            return shape[0]
        if suffix == "_blocks" and len(shape) > 3:
            return shape[0]
    return 0


def is_main(suffix: str) -> bool:
    return suffix in MAIN or suffix == "_blocks"


def unstacked(shape: Shape, stack: int) -> Shape:
    return shape[1:] if stack and shape and shape[0] == stack else shape


def type_name(code: str) -> str:
    """A type as `expected_parts` names it: GGML's block types keep their own name."""
    try:
        return str(element_type(code))
    except UnknownFormat:
        return code


def parts_of_largest(held: Iterable[Held]) -> CodedParts:
    """Parts of the module with the most elements; of several of one part, the commonest."""
    by_source: dict[int, dict[str, Held]] = {}
    for one in held:
        chosen = by_source.setdefault(one.source, {})
        before = chosen.get(one.suffix)
        if before is None or one.count * prod(one.shape) > before.count * prod(before.shape):
            chosen[one.suffix] = one
    largest = max(
        by_source.values(),
        key=lambda parts: max(prod(one.shape) * one.count for one in parts.values()),
    )
    return {suffix: (one.code, one.shape) for suffix, one in largest.items()}


def main_count(held: Iterable[Held], stack: int) -> Fraction:
    """Matrices under one index, by the tensors that hold elements."""
    return sum(
        (
            one.count * (stack if stack and one.shape and one.shape[0] == stack else 1)
            for one in held
            if is_main(one.suffix)
        ),
        Fraction(0),
    )


def same_parts(shape: Shape, one: WeightFormat, other: WeightFormat) -> bool:
    """Whether two formats store a matrix of this shape in the same parts."""
    if one == other:
        return True
    try:
        mine, others = stored_parts(shape, one), stored_parts(shape, other)
    except UnknownFormat:
        return False
    return [
        (p.suffix, p.dtype, plain_shape(p.shape)) for p in mine if not p.suffix.startswith(QUANT_STATE)
    ] == [(p.suffix, p.dtype, plain_shape(p.shape)) for p in others if not p.suffix.startswith(QUANT_STATE)]
