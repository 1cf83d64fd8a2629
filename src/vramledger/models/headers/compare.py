"""Described tensors held against the header rows that store them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from vramledger.errors import UnknownFormat
from vramledger.formats.weights import (
    Dense,
    Ggml,
    Shape,
    WeightFormat,
    format_label,
    stored_bytes,
    stored_parts,
)
from vramledger.models.headers.findings import Findings
from vramledger.models.headers.parts import (
    MAIN,
    QUANT_STATE,
    Held,
    first_indices,
    held_by_index,
    plain_shape,
)
from vramledger.models.headers.reading import CodedParts, ReadFormat, element_type
from vramledger.models.quantization import StoredTensor
from vramledger.models.sources.header_table import HeaderRow
from vramledger.models.tensors import Tensor

Placed = tuple[int, StoredTensor]
"""A stored tensor with its place in the description."""

SourceRow = tuple[int, str, HeaderRow]
"""Which of a pool's modules a row belongs to, which part it is, and the row."""

PartKey = tuple[str, str, Shape]


class Pool(Struct, frozen=True, kw_only=True):
    """Described tensors and the rows of the modules that hold them together.

    `names` are the modules' templates; `one_to_one` is False where projections are fused on one side only. `quiet`
    leaves formats untold, for files whose config was made from themselves.
    """

    claims: tuple[Placed, ...]
    rows: tuple[SourceRow, ...]
    names: tuple[str, ...]
    one_to_one: bool
    quiet: bool = False


class Outcome(Struct):
    """What the comparison of all pools has found: corrected tensors, absent ones, and what of each row was used."""

    stored: list[Placed] = field(default_factory=list)
    missing: list[Placed] = field(default_factory=list)
    used: dict[HeaderRow, set[int] | None] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def use(self, rows: Iterable[SourceRow], indices: Iterable[int] | None) -> None:
        """Mark rows as described, under some first indices or all (None)."""
        wanted = None if indices is None else set(indices)
        for _, _, row in rows:
            before = self.used.get(row, set())
            self.used[row] = None if wanted is None or before is None or not row.layers else before | wanted


def compare_pool(pool: Pool, read: ReadFormat, outcome: Outcome, findings: Findings) -> None:
    """Put a pool's tensors, with the formats the rows say, into `outcome`, and what differs into `findings`."""
    if pool.one_to_one and _is_as_described(pool):
        outcome.stored.extend(pool.claims)
        outcome.use(pool.rows, None)
        return
    for claims in _lots(pool.claims):
        shapes = {plain_shape(_matrix(item.tensor)[1]) for _, item in claims}
        if pool.one_to_one and len(shapes) > 1:
            _Lot(pool, claims, read, outcome, findings).by_shape()
        else:
            _Lot(pool, claims, read, outcome, findings).compare(pool.rows)


def _matrix(tensor: Tensor) -> tuple[int, Shape]:
    """How many matrices a tensor stacks for its experts, and the shape of one."""
    if tensor.num_experts and len(tensor.shape) > 2:
        return tensor.num_experts, tensor.shape[1:]
    return 1, tensor.shape


def _expected(item: StoredTensor) -> list[tuple[PartKey, int, Shape]]:
    """Parts of a stored tensor over all its repetitions: key, count, shape as described.

    A GGUF header states a block type's shape in elements.
    """
    stack, shape = _matrix(item.tensor)
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


def _is_as_described(pool: Pool) -> bool:
    """Whether rows and description have the same parts, as often, under the same indices."""
    wanted: dict[PartKey, int] = {}
    indices: dict[PartKey, set[int] | None] = {}
    for _, item in pool.claims:
        first = first_indices(item.tensor)
        for key, count, _ in _expected(item):
            wanted[key] = wanted.get(key, 0) + count
            seen = indices.setdefault(key, set())
            indices[key] = None if seen is None or first is None else seen | first
    held: dict[PartKey, int] = {}
    held_indices: dict[PartKey, set[int]] = {}
    is_stacked = _stacked(pool.claims, [(suffix, row.shape) for _, suffix, row in pool.rows])
    for _, suffix, row in pool.rows:
        try:
            key, times = _held_key(suffix, row.dtype, row.shape, is_stacked)
        except UnknownFormat:
            return False
        held[key] = held.get(key, 0) + row.count * times
        held_indices.setdefault(key, set()).update(*row.layers)
    if held != wanted:
        return False
    return all(seen is None or seen == held_indices[key] for key, seen in indices.items())


def _held_key(suffix: str, code: str, shape: Shape, stack: int) -> tuple[PartKey, int]:
    """A row's part as `_expected` keys it, and how many matrices' parts one tensor holds."""
    times = 1
    if stack and shape and shape[0] == stack:
        times, shape = stack, shape[1:]
    is_text = suffix.startswith(QUANT_STATE)
    return (suffix, str(element_type(code)), () if is_text else plain_shape(shape)), times


def _stacked(claims: Sequence[Placed], parts: Iterable[tuple[str, Shape]]) -> int:
    """The length of the experts' axis where experts lie in one tensor, else 0."""
    if not any(item.tensor.num_experts and len(item.tensor.shape) > 2 for _, item in claims):
        return 0
    for suffix, shape in parts:
        if suffix in MAIN and len(shape) > 2:
            return shape[0]
        if suffix == "_blocks" and len(shape) > 3:
            return shape[0]
    return 0


def _lots(claims: Sequence[Placed]) -> list[tuple[Placed, ...]]:
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


class _Lot(Struct):
    """Claims that share first indices."""

    pool: Pool
    claims: Sequence[Placed]
    read: ReadFormat
    outcome: Outcome
    findings: Findings

    def indices(self) -> frozenset[int] | None:
        out: frozenset[int] = frozenset()
        for _, item in self.claims:
            first = first_indices(item.tensor)
            if first is None:
                return None
            out |= first
        return out or None

    def by_shape(self) -> None:
        """Claims of one module with different shapes (a tower's stages): rows go to the claim of their shape."""
        rest = list(self.pool.rows)
        for shape in sorted({plain_shape(_matrix(item.tensor)[1]) for _, item in self.claims}):
            mine = [row for row in rest if plain_shape(row[2].shape) == shape and row[1] == ".weight"]
            claims = [claim for claim in self.claims if plain_shape(_matrix(claim[1].tensor)[1]) == shape]
            _Lot(self.pool, claims, self.read, self.outcome, self.findings).compare(mine)

    def compare(self, rows: Sequence[SourceRow]) -> None:
        found = held_by_index(rows, self.indices())
        groups: dict[tuple[Held, ...], list[int | None]] = {}
        for index, held in found.items():
            groups.setdefault(tuple(sorted(held)), []).append(index)
        left = [(place, item) for place, item in self.claims]
        for alike, indices in groups.items():
            left = self._group(alike, indices, left, rows)
        self.outcome.missing.extend(left)

    def _group(
        self,
        held: tuple[Held, ...],
        indices: list[int | None],
        left: list[Placed],
        rows: Sequence[SourceRow],
    ) -> list[Placed]:
        """Give the claims under these indices the format of what is held there; what is left of the claims."""
        numbers = {index for index in indices if index is not None}
        parts = _parts_of_largest(held)
        stack = _stacked(left, ((suffix, shape) for suffix, (_, shape) in parts.items()))
        parts = {name: (code, _unstacked(shape, stack)) for name, (code, shape) in parts.items()}
        main_count = _main_count(held, stack) * len(indices)
        taken: list[Placed] = []
        rest: list[Placed] = []
        for place, item in left:
            mine, others, main_count = _share(item, numbers, main_count, fused=not self.pool.one_to_one)
            if others is not None:
                rest.append((place, others))
            if mine is not None:
                taken.append((place, self._formatted(mine, parts)))
        if not taken:
            return left
        self.outcome.stored.extend(taken)
        suffixes = self._check(taken, held, len(indices), stack)
        self.outcome.use((row for row in rows if row[1] in suffixes), numbers or None)
        return rest

    def _formatted(self, item: StoredTensor, parts: CodedParts) -> StoredTensor:
        """The tensor in the format of its parts; as assumed where these are the parts it would have."""
        _, shape = _matrix(item.tensor)
        columns = shape[-1] if len(shape) > 1 else None
        try:
            kind = self.read(parts, columns, item.format)
            changed = StoredTensor(tensor=item.tensor, format=kind)
            after = stored_bytes(item.tensor.shape, kind)
        except UnknownFormat as problem:
            self.outcome.unknown.append(problem.message)
            self.findings.group(
                f"{problem.message}, and {format_label(item.format)} is kept",
                item.tensor.name,
                item.tensor.repetitions,
                item.stored_bytes,
            )
            return item
        if _same_parts(shape, kind, item.format):
            return item
        if not self.pool.quiet:
            self._tell_format(item, kind, (after - stored_bytes(item.tensor.shape, item.format)))
        return changed

    def _tell_format(self, item: StoredTensor, kind: WeightFormat, more_bytes: int) -> None:
        old, new = format_label(item.format), format_label(kind)
        stack, _ = _matrix(item.tensor)
        count = item.tensor.repetitions * (stack if "{expert}" in item.tensor.name else 1)
        more = more_bytes * item.tensor.repetitions
        if old == new:
            what = f"{new} with other scales than the config implies"
        elif isinstance(kind, Dense) and isinstance(item.format, Dense):
            what = f"stored in {new}, described in {old}"
        else:
            what = f"stored as {new} where the config implies {old}"
        self.findings.group(what, item.tensor.name, count, more, is_change=True)

    def _check(self, taken: Sequence[Placed], held: tuple[Held, ...], times: int, stack: int) -> set[str]:
        """Tell shapes and counts that differ; the suffixes of the parts that are accounted for."""
        wanted: Counter[PartKey] = Counter()
        shown: dict[PartKey, Shape] = {}
        for _, item in taken:
            for key, count, shape in _expected(item):
                wanted[key] += count
                shown[key] = shape
        suffixes = {key[0] for key in wanted}
        there: dict[PartKey, Fraction] = {}
        for one in held:
            is_text = one.suffix.startswith(QUANT_STATE)
            shape = _unstacked(one.shape, stack)
            key = (one.suffix, _type_name(one.code), () if is_text else plain_shape(shape))
            factor = stack if stack and one.shape and one.shape[0] == stack else 1
            there[key] = there.get(key, Fraction(0)) + one.count * times * factor
            shown[key] = shape
        actual = Counter({key: int(count) for key, count in there.items() if key[0] in suffixes})
        if not self.pool.one_to_one:
            self._check_elements(taken, wanted, actual)
        elif actual != wanted:
            self._tell_shapes(taken, wanted - actual, actual - wanted, shown)
        return suffixes

    def _check_elements(
        self, taken: Sequence[Placed], wanted: Counter[PartKey], actual: Counter[PartKey]
    ) -> None:
        """Projections fused on one side only: their elements must come to the same."""
        mine = sum(prod(key[2]) * count for key, count in wanted.items() if _is_main(key[0]))
        theirs = sum(prod(key[2]) * count for key, count in actual.items() if _is_main(key[0]))
        if mine != theirs:
            name = taken[0][1].tensor.name
            self.findings.add(
                f"{', '.join(self.pool.names[:3])}: the file holds {theirs} elements where the description of"
                f" {name} has {mine}",
                sum(item.stored_bytes for _, item in taken),
            )

    def _tell_shapes(
        self,
        taken: Sequence[Placed],
        absent: Counter[PartKey],
        extra: Counter[PartKey],
        shown: dict[PartKey, Shape],
    ) -> None:
        name = taken[0][1].tensor.name
        size = sum(item.stored_bytes for _, item in taken)
        main = [key for key in (*absent, *extra) if _is_main(key[0])]
        keys = main or [*absent, *extra]
        typed = {key[2] for key in absent} & {key[2] for key in extra}
        described, held = (
            [(shown[key], side[key], key[1] if key[2] in typed else "") for key in keys if key in side]
            for side in (absent, extra)
        )
        part = keys[0][0] if not main and keys else ""
        self.findings.add(
            f"{name}{' (' + part + ')' if part else ''}: the file has {_shapes(held)}"
            f" where the description has {_shapes(described)}",
            size if main else 0,
        )


def _is_main(suffix: str) -> bool:
    return suffix in MAIN or suffix == "_blocks"


def _type_name(code: str) -> str:
    """A type as `_expected` names it: GGML's block types keep their own name."""
    try:
        return str(element_type(code))
    except UnknownFormat:
        return code


def _shapes(items: Sequence[tuple[Shape, int, str]]) -> str:
    """ "32 x [4096, 4096]", with the type where that alone differs; "none"."""
    texts = [f"{count} x {list(shape)}{' ' + kind if kind else ''}" for shape, count, kind in items[:3]]
    return " and ".join(texts) + (" and others" if len(items) > 3 else "") if texts else "none"


def _unstacked(shape: Shape, stack: int) -> Shape:
    return shape[1:] if stack and shape and shape[0] == stack else shape


def _parts_of_largest(held: Iterable[Held]) -> CodedParts:
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


def _main_count(held: Iterable[Held], stack: int) -> Fraction:
    """Matrices under one index, by the tensors that hold elements."""
    return sum(
        (
            one.count * (stack if stack and one.shape and one.shape[0] == stack else 1)
            for one in held
            if _is_main(one.suffix)
        ),
        Fraction(0),
    )


def _share(
    item: StoredTensor, numbers: set[int], matrices: Fraction, *, fused: bool
) -> tuple[StoredTensor | None, StoredTensor | None, Fraction]:
    """Split a claim into what lies under these indices and the rest; `matrices` is what is still unclaimed there."""
    tensor = item.tensor
    if tensor.layers and "{layer}" in tensor.name:
        inside = tuple(layer for layer in tensor.layers if layer in numbers)
        outside = tuple(layer for layer in tensor.layers if layer not in numbers)
        return _with_layers(item, inside), _with_layers(item, outside), matrices
    each, _ = _matrix(tensor)
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


def _same_parts(shape: Shape, one: WeightFormat, other: WeightFormat) -> bool:
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


__all__ = ["Outcome", "Placed", "Pool", "SourceRow", "compare_pool"]
