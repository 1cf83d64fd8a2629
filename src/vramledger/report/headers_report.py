"""What can be said of a checkpoint from its headers alone, when its architecture has no description here."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from vramledger.models.sources.header_table import HeaderTable
from vramledger.report.text import Line, columns, gib, line, wrapped

_MOST_ROWS = 24


class HeaderFacts(Struct, frozen=True, kw_only=True):
    """Totals of a header table. `patterns` are the largest rows first: name template, dtype, shape, count, bytes."""

    tensor_count: int
    total_bytes: int
    elements_by_dtype: tuple[tuple[str, int], ...]
    bytes_by_dtype: tuple[tuple[str, int], ...]
    patterns: tuple[tuple[str, str, tuple[int, ...], int, int], ...]

    def as_facts(self) -> dict[str, object]:
        """The same by name, in plain values."""
        return {
            "tensor_count": self.tensor_count,
            "total_bytes": self.total_bytes,
            "bytes_by_dtype": dict(self.bytes_by_dtype),
            "elements_by_dtype": dict(self.elements_by_dtype),
            "patterns": [
                {"template": name, "dtype": dtype, "shape": list(shape), "count": count, "bytes": size}
                for name, dtype, shape, count, size in self.patterns
            ],
        }


def header_facts(table: HeaderTable) -> HeaderFacts:
    """Bytes, types and name patterns, exact as far as headers go."""
    rows = sorted(table.rows, key=lambda row: (-row.total_bytes, row.template))
    return HeaderFacts(
        tensor_count=table.tensor_count,
        total_bytes=table.total_bytes,
        elements_by_dtype=tuple(table.elements_by_dtype().items()),
        bytes_by_dtype=tuple(table.bytes_by_dtype().items()),
        patterns=tuple((row.template, row.dtype, row.shape, row.count, row.total_bytes) for row in rows),
    )


def header_lines(facts: HeaderFacts, *, width: int = 80) -> Iterator[Line]:
    """The page of `facts`."""
    types = ", ".join(f"{name} {gib(size)} GiB" for name, size in facts.bytes_by_dtype)
    yield from wrapped(
        f"the headers say: {facts.tensor_count:,} tensor{'s' if facts.tensor_count != 1 else ''}, {gib(facts.total_bytes)} GiB ({types})",
        width,
        rest="  ",
        style="head",
    )
    rows = [("  tensors", "count", "type", "shape", "GiB")]
    for template, dtype, shape, count, size in facts.patterns[:_MOST_ROWS]:
        name = template if len(template) <= width // 2 else "..." + template[3 - width // 2 :]
        rows.append((f"  {name}", f"{count:,}", dtype, "x".join(map(str, shape)) or "scalar", gib(size)))
    yield from columns(rows, right=(1, 4), styles=("dim",))
    if len(facts.patterns) > _MOST_ROWS:
        yield line(f"  and {len(facts.patterns) - _MOST_ROWS} more patterns (--json lists all)", "dim")
    yield from wrapped(
        "A rank needs its share of these bytes, and KV cache that nothing here can size.", width, style="dim"
    )
