"""What headers say, for a person and for a program, when the architecture or format has no description here."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.models.headers.summary import HeaderSummary, NamePattern
from vramledger.report.text import Line, columns, gib, line, wrapped

_MOST_ROWS = 24
_SHORTEST_NAME = 16


def header_facts(summary: HeaderSummary) -> dict[str, object]:
    """The summary in plain values, for an error's facts."""
    return {
        "from": "index" if summary.from_index else "headers",
        "tensor_count": summary.tensor_count,
        "total_bytes": summary.total_bytes,
        "num_layers": summary.num_layers,
        "bytes_by_dtype": dict(summary.bytes_by_dtype),
        "elements_by_dtype": dict(summary.elements_by_dtype),
        "patterns": [
            {
                "template": pattern.template,
                "dtype": pattern.dtype or None,
                "shape": None if pattern.shape is None else list(pattern.shape),
                "count": pattern.count,
                "bytes": pattern.total_bytes,
            }
            for pattern in summary.patterns
        ],
    }


def header_lines(summary: HeaderSummary, *, width: int = 80) -> Iterator[Line]:
    """The page of a summary."""
    yield from wrapped(_title(summary), width, rest="  ", style="head")
    shown = summary.patterns[:_MOST_ROWS]
    cells = [_cells(pattern) for pattern in shown]
    head = ("count",) if summary.from_index else ("count", "type", "shape", "GiB")
    rest = sum(2 + max(len(row[i]) for row in [head, *cells]) for i in range(len(head)))
    room = max(width - 2 - rest, _SHORTEST_NAME)
    rows = [("  tensors", *head)]
    rows += [(f"  {_cut(item.template, room)}", *row) for item, row in zip(shown, cells, strict=True)]
    yield from columns(rows, right=(1, 4), styles=("dim",))
    if len(summary.patterns) > _MOST_ROWS:
        yield line(f"  and {len(summary.patterns) - _MOST_ROWS} more patterns (--json lists all)", "dim")
    yield from wrapped(
        "A rank needs its share of these bytes, and KV cache that nothing here can size.", width, style="dim"
    )


def _title(summary: HeaderSummary) -> str:
    text = f"the {'index says' if summary.from_index else 'headers say'}: {summary.tensor_count:,} tensor"
    text += "" if summary.tensor_count == 1 else "s"
    if summary.total_bytes is not None:
        text += f", {gib(summary.total_bytes)} GiB"
    if summary.bytes_by_dtype:
        text += f" ({', '.join(f'{name} {gib(size)} GiB' for name, size in summary.bytes_by_dtype)})"
    if summary.num_layers > 1:
        text += f", {summary.num_layers} layers"
    return text


def _cells(pattern: NamePattern) -> tuple[str, ...]:
    count = f"{pattern.count:,}"
    if pattern.shape is None or pattern.total_bytes is None:
        return (count,)
    return count, pattern.dtype, "x".join(map(str, pattern.shape)) or "scalar", gib(pattern.total_bytes)


def _cut(name: str, room: int) -> str:
    """The end of a name tells more than its beginning."""
    return name if len(name) <= room else "..." + name[3 - room :]
