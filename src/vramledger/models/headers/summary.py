"""What headers say of a checkpoint without any description of its architecture."""

from __future__ import annotations

from msgspec import Struct

from vramledger.models.headers.parts import split_names
from vramledger.models.sources.header_table import HeaderTable
from vramledger.models.sources.load import Source


class ModuleGroup(Struct, frozen=True, kw_only=True):
    """Tensors of modules with one name template, all their parts together."""

    template: str
    tensor_count: int
    elements: int
    size_bytes: int
    dtypes: tuple[str, ...]


class HeaderSummary(Struct, frozen=True, kw_only=True):
    """Exact totals. `elements` counts as the headers do: of packed types, what they are packed into.

    `groups` are the largest modules first; `num_layers` is how many values the first index takes below the
    name (model.layers) that holds the most bytes, 0 where no name has an index.
    """

    tensor_count: int
    total_bytes: int
    elements: int
    elements_by_dtype: tuple[tuple[str, int], ...]
    bytes_by_dtype: tuple[tuple[str, int], ...]
    groups: tuple[ModuleGroup, ...]
    num_layers: int


def describe_headers(source: Source) -> HeaderSummary | None:
    """The summary of a source's table; None where no headers were read."""
    return None if source.table is None else summarise(source.table)


def summarise(table: HeaderTable) -> HeaderSummary:
    """The summary of a table."""
    names = split_names(row.template for row in table.rows)
    counts: dict[str, list[int]] = {}
    dtypes: dict[str, dict[str, None]] = {}
    stack_bytes: dict[str, int] = {}
    for row in table.rows:
        stem = names[row.template][0]
        sums = counts.setdefault(stem, [0, 0, 0])
        sums[0] += row.count
        sums[1] += row.total_elements
        sums[2] += row.total_bytes
        dtypes.setdefault(stem, {})[row.dtype] = None
    spans: dict[str, set[int]] = {}
    for row in table.rows:
        for run in row.layers:
            spans.setdefault(_stack(row.template), set()).update(run)
        if row.layers:
            key = _stack(row.template)
            stack_bytes[key] = stack_bytes.get(key, 0) + row.total_bytes
    widest = max(stack_bytes, key=stack_bytes.__getitem__, default=None)
    groups = [
        ModuleGroup(
            template=stem,
            tensor_count=sums[0],
            elements=sums[1],
            size_bytes=sums[2],
            dtypes=tuple(dtypes[stem]),
        )
        for stem, sums in counts.items()
    ]
    return HeaderSummary(
        tensor_count=table.tensor_count,
        total_bytes=table.total_bytes,
        elements=table.total_elements,
        elements_by_dtype=tuple(table.elements_by_dtype().items()),
        bytes_by_dtype=tuple(table.bytes_by_dtype().items()),
        groups=tuple(sorted(groups, key=lambda group: (-group.size_bytes, group.template))),
        num_layers=len(spans[widest]) if widest is not None else 0,
    )


def _stack(template: str) -> str:
    """What stands before the first index: "model.layers"."""
    return template.partition(".{}")[0]
