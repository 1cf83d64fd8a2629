"""What headers say of a checkpoint without any description of its architecture; an index's names where there are none."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from vramledger.models.sources.header_table import HeaderTable
from vramledger.models.sources.index_file import IndexInfo
from vramledger.models.sources.load import Source


class NamePattern(Struct, frozen=True, kw_only=True):
    """Tensors whose names differ only in their indices, all of one type and shape.

    An index states none: `dtype` is "" and `shape` and `total_bytes` are None there.
    """

    template: str
    count: int
    layers: tuple[range, ...]
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    total_bytes: int | None = None


class HeaderSummary(Struct, frozen=True, kw_only=True):
    """Exact totals; of an index (`from_index`), its names and the size it claims, None where it claims none.

    Elements count as the headers do: of packed types, what they are packed into. `patterns` are the largest first;
    `num_layers` is how many values the first index takes below the name (model.layers) that holds most, 0 where no
    name has an index.
    """

    tensor_count: int
    total_bytes: int | None
    elements_by_dtype: tuple[tuple[str, int], ...]
    bytes_by_dtype: tuple[tuple[str, int], ...]
    patterns: tuple[NamePattern, ...]
    num_layers: int
    from_index: bool = False


def describe_headers(source: Source) -> HeaderSummary | None:
    """The summary of a source's table or index; None where neither was read."""
    if source.table is not None:
        return summarise(source.table)
    return None if source.index is None else _summarise_index(source.index)


def summarise(table: HeaderTable) -> HeaderSummary:
    """The summary of a table."""
    patterns = [
        NamePattern(
            template=row.template,
            count=row.count,
            layers=row.layers,
            dtype=row.dtype,
            shape=row.shape,
            total_bytes=row.total_bytes,
        )
        for row in table.rows
    ]
    return HeaderSummary(
        tensor_count=table.tensor_count,
        total_bytes=table.total_bytes,
        elements_by_dtype=tuple(table.elements_by_dtype().items()),
        bytes_by_dtype=tuple(table.bytes_by_dtype().items()),
        patterns=tuple(sorted(patterns, key=_largest_first)),
        num_layers=_num_layers(patterns),
    )


def _summarise_index(index: IndexInfo) -> HeaderSummary:
    patterns = [NamePattern(template=row.template, count=row.count, layers=row.layers) for row in index.rows]
    return HeaderSummary(
        tensor_count=index.tensor_count,
        total_bytes=index.total_size_bytes,
        elements_by_dtype=(),
        bytes_by_dtype=(),
        patterns=tuple(sorted(patterns, key=_largest_first)),
        num_layers=_num_layers(patterns),
        from_index=True,
    )


def _largest_first(pattern: NamePattern) -> tuple[int, str]:
    return -_weight(pattern), pattern.template


def _weight(pattern: NamePattern) -> int:
    return pattern.count if pattern.total_bytes is None else pattern.total_bytes


def _num_layers(patterns: Iterable[NamePattern]) -> int:
    """Values of the first index below the stem ("model.layers") that holds the most bytes, or names."""
    spans: dict[str, set[int]] = {}
    sums: dict[str, int] = {}
    for pattern in patterns:
        if pattern.layers:
            stem = pattern.template.partition(".{}")[0]
            spans.setdefault(stem, set()).update(*pattern.layers)
            sums[stem] = sums.get(stem, 0) + _weight(pattern)
    return len(spans[max(sums, key=sums.__getitem__)]) if sums else 0
