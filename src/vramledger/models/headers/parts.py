"""Tensor names of a checkpoint, cut into the module and the part of it that each tensor stores.

`model.layers.{}.mlp.up_proj.qweight` is the part `.qweight` of the module `model.layers.{}.mlp.up_proj`. Parts
have the names of formats/weights.py; a tensor that is all of its module is its part `.weight`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from msgspec import Struct

from vramledger.formats.weights import Shape
from vramledger.models.sources.header_table import HeaderRow
from vramledger.models.sources.names import template_of
from vramledger.models.tensors import Tensor

MAIN = (".weight", ".qweight", ".weight_packed")
"""Parts that hold a matrix's own elements; `_blocks` is gpt-oss's."""

BIAS = ".bias"
STACK_BIAS = "_proj_bias"
"""How the bias of a stack of experts ends, which is a parameter beside the stack's own."""

_BESIDE = (
    ".qzeros", ".scales", ".g_idx", ".weight_scale_inv", ".weight_scale_2", ".weight_scale", ".scale", ".input_scale",
    ".input_global_scale", ".weight_global_scale", ".weight_zero_point", ".weight_g_idx", ".weight_shape",
    ".pre_quant_scale", ".SCB", ".weight_format", ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax",
    ".weight.nested_quant_map",
)  # fmt: skip
QUANT_STATE = ".weight.quant_state."

# Stacks of experts are parameters without `.weight`; their scales follow an underscore (Transformers' FP8 experts,
# ModelOpt's Llama 4 export).
_BESIDE_STACK = {
    "_weight_scale_inv": ".weight_scale_inv", "_weight_scale_2": ".weight_scale_2", "_weight_scale": ".weight_scale",
    "_scale_inv": ".weight_scale_inv", "_input_scale": ".input_scale", "_activation_scale": ".input_scale",
}  # fmt: skip

_PLACEHOLDER = re.compile(r"\{\w+\}")


class Module(Struct, frozen=True):
    """All header rows of one module, with the part each of them is."""

    stem: str
    rows: tuple[tuple[str, HeaderRow], ...]

    def parts(self, *, bias: bool) -> tuple[tuple[str, HeaderRow], ...]:
        """The rows of the bias as a tensor of its own, or those of everything else."""
        if bias:
            return tuple((".weight", row) for suffix, row in self.rows if suffix == BIAS)
        return tuple((suffix, row) for suffix, row in self.rows if suffix != BIAS)


class Held(Struct, frozen=True, order=True):
    """Parts of one kind under one index (or none): `count` of them, a fraction where indices differ."""

    source: int
    suffix: str
    code: str
    shape: Shape
    count: Fraction


def split_names(templates: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Module and part of every template. A scale is a part only where the tensor it scales is there."""
    known = frozenset(templates)
    return {template: _split(template, known) for template in known}


def _split(template: str, known: frozenset[str]) -> tuple[str, str]:
    for suffix in (*MAIN, BIAS):
        if template.endswith(suffix) and len(template) > len(suffix):
            return template.removesuffix(suffix), suffix
    if template.endswith(STACK_BIAS):
        return template.removesuffix("_bias"), BIAS
    if template.endswith("_blocks"):
        return template.removesuffix("_blocks"), "_blocks"
    stem, found, rest = template.partition(QUANT_STATE)
    if found and f"{stem}.weight" in known:
        return stem, QUANT_STATE + rest
    for suffix in _BESIDE:
        if template.endswith(suffix):
            stem = template.removesuffix(suffix)
            if stem in known or any(stem + main in known for main in MAIN):
                return stem, suffix
    if template.endswith("_scales") and template.removesuffix("_scales") + "_blocks" in known:
        return template.removesuffix("_scales"), "_scales"
    for suffix, part in _BESIDE_STACK.items():
        if template.endswith(suffix) and template.removesuffix(suffix) in known:
            return template.removesuffix(suffix), part
    return template, ".weight"


def modules_of(rows: Iterable[HeaderRow]) -> dict[str, Module]:
    """Every module of a table by its template."""
    listed = tuple(rows)
    names = split_names(row.template for row in listed)
    found: dict[str, list[tuple[str, HeaderRow]]] = {}
    for row in listed:
        stem, suffix = names[row.template]
        found.setdefault(stem, []).append((suffix, row))
    return {stem: Module(stem, tuple(parts)) for stem, parts in found.items()}


def stem_of(tensor: Tensor) -> tuple[str, bool]:
    """A described tensor's module as a template of headers, and whether the tensor is its bias."""
    name = tensor.name
    is_bias = name.endswith((BIAS, STACK_BIAS))
    name = name.removesuffix(BIAS).removesuffix("_bias") if is_bias else name.removesuffix(".weight")
    return template_of(_PLACEHOLDER.sub("{}", name)), is_bias


def first_indices(tensor: Tensor) -> frozenset[int] | None:
    """Values of the first index in a tensor's names: empty without one, None where only their number is known."""
    for part in tensor.name.split("."):
        if part == "{layer}":
            return frozenset(tensor.layers)
        if part.startswith("{"):
            return None
        if part.isdecimal():
            return frozenset((int(part),))
    return frozenset()


def held_by_index(
    rows: Iterable[tuple[int, str, HeaderRow]], wanted: frozenset[int] | None
) -> dict[int | None, list[Held]]:
    """What stands under each value of the first index that is `wanted` (None: any)."""
    found: dict[int | None, list[Held]] = {}
    for source, suffix, row in rows:
        if not row.layers:
            held = Held(source, suffix, row.dtype, row.shape, Fraction(row.count))
            found.setdefault(None, []).append(held)
            continue
        held = Held(source, suffix, row.dtype, row.shape, Fraction(row.count, row.num_layers))
        for run in row.layers:
            for index in run:
                if wanted is None or index in wanted:
                    found.setdefault(index, []).append(held)
    return found


def plain_shape(shape: Shape) -> Shape:
    """A shape without axes of one, sorted: what two layouts of the same tensor share."""
    return tuple(sorted(size for size in shape if size != 1))


def counted(items: Iterable[tuple[tuple[str, str, Shape], Fraction]]) -> Counter[tuple[str, str, Shape]]:
    """Counts summed by part, type and shape; parts that come to a fraction are rounded down."""
    sums: dict[tuple[str, str, Shape], Fraction] = {}
    for key, count in items:
        sums[key] = sums.get(key, Fraction(0)) + count
    return Counter({key: int(count) for key, count in sums.items() if count})
