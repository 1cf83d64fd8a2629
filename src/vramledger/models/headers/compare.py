"""Described tensors held against the header rows that store them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import prod

from msgspec import Struct, field

from vramledger.errors import UnknownFormat
from vramledger.formats.weights import (
    Dense,
    Shape,
    WeightFormat,
    format_label,
    stored_bytes,
)
from vramledger.models.headers.claims import lots_of, share
from vramledger.models.headers.counting import (
    PartKey,
    Placed,
    expected_parts,
    held_key,
    is_main,
    main_count,
    matrix_of,
    parts_of_largest,
    same_parts,
    stack_length,
    type_name,
    unstacked,
)
from vramledger.models.headers.findings import Findings
from vramledger.models.headers.parts import (
    QUANT_STATE,
    Held,
    first_indices,
    held_by_index,
    plain_shape,
)
from vramledger.models.headers.reading import CodedParts, ReadFormat
from vramledger.models.quantization import StoredTensor
from vramledger.models.sources.header_table import HeaderRow

SourceRow = tuple[int, str, HeaderRow]
"""Which of a pool's modules a row belongs to, which part it is, and the row."""


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
    for claims in lots_of(pool.claims):
        shapes = {plain_shape(matrix_of(item.tensor)[1]) for _, item in claims}
        if pool.one_to_one and len(shapes) > 1:
            _Lot(pool, claims, read, outcome, findings).by_shape()
        else:
            _Lot(pool, claims, read, outcome, findings).compare(pool.rows)


def _is_as_described(pool: Pool) -> bool:
    """Whether rows and description have the same parts, as often, under the same indices."""
    wanted: dict[PartKey, int] = {}
    indices: dict[PartKey, set[int] | None] = {}
    for _, item in pool.claims:
        first = first_indices(item.tensor)
        for key, count, _ in expected_parts(item):
            wanted[key] = wanted.get(key, 0) + count
            seen = indices.setdefault(key, set())
            indices[key] = None if seen is None or first is None else seen | first
    held: dict[PartKey, int] = {}
    held_indices: dict[PartKey, set[int]] = {}
    is_stacked = stack_length(pool.claims, [(suffix, row.shape) for _, suffix, row in pool.rows])
    for _, suffix, row in pool.rows:
        try:
            key, times = held_key(suffix, row.dtype, row.shape, is_stacked)
        except UnknownFormat:
            return False
        held[key] = held.get(key, 0) + row.count * times
        held_indices.setdefault(key, set()).update(*row.layers)
    if held != wanted:
        return False
    return all(seen is None or seen == held_indices[key] for key, seen in indices.items())


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
        for shape in sorted({plain_shape(matrix_of(item.tensor)[1]) for _, item in self.claims}):
            mine = [row for row in rest if plain_shape(row[2].shape) == shape and row[1] == ".weight"]
            claims = [claim for claim in self.claims if plain_shape(matrix_of(claim[1].tensor)[1]) == shape]
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
        parts = parts_of_largest(held)
        stack = stack_length(left, ((suffix, shape) for suffix, (_, shape) in parts.items()))
        parts = {name: (code, unstacked(shape, stack)) for name, (code, shape) in parts.items()}
        matrices = main_count(held, stack) * len(indices)
        taken: list[Placed] = []
        rest: list[Placed] = []
        for place, item in left:
            mine, others, matrices = share(item, numbers, matrices, fused=not self.pool.one_to_one)
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
        _, shape = matrix_of(item.tensor)
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
        if same_parts(shape, kind, item.format):
            return item
        if not self.pool.quiet:
            self._tell_format(item, kind, (after - stored_bytes(item.tensor.shape, item.format)))
        return changed

    def _tell_format(self, item: StoredTensor, kind: WeightFormat, more_bytes: int) -> None:
        old, new = format_label(item.format), format_label(kind)
        stack, _ = matrix_of(item.tensor)
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
            for key, count, shape in expected_parts(item):
                wanted[key] += count
                shown[key] = shape
        suffixes = {key[0] for key in wanted}
        there: dict[PartKey, Fraction] = {}
        for one in held:
            is_text = one.suffix.startswith(QUANT_STATE)
            shape = unstacked(one.shape, stack)
            key = (one.suffix, type_name(one.code), () if is_text else plain_shape(shape))
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
        mine = sum(prod(key[2]) * count for key, count in wanted.items() if is_main(key[0]))
        theirs = sum(prod(key[2]) * count for key, count in actual.items() if is_main(key[0]))
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
        main = [key for key in (*absent, *extra) if is_main(key[0])]
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


def _shapes(items: Sequence[tuple[Shape, int, str]]) -> str:
    """ "32 x [4096, 4096]", with the type where that alone differs; "none"."""
    texts = [f"{count} x {list(shape)}{' ' + kind if kind else ''}" for shape, count, kind in items[:3]]
    return " and ".join(texts) + (" and others" if len(items) > 3 else "") if texts else "none"


__all__ = ["Outcome", "Pool", "SourceRow", "compare_pool"]
