"""A measurement as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.ledger import ByteRange
from vramledger.measurement import (
    AllocatorState,
    Figure,
    GraphCapture,
    HostMemory,
    MeasuredPool,
    Measurement,
)
from vramledger.report.settings_text import settings_text
from vramledger.report.text import Line, columns, line, ranks_text, utc_text, wrapped
from vramledger.units import GIB, KIB, MIB

MOST_ROWS = 24


def measurement_lines(measurement: Measurement, *, width: int = 80) -> Iterator[Line]:
    """The page: what was measured, then bytes by part of the ledger, pool, allocator, graphs, host, notes. What no source told is
    not there."""
    yield from _header(measurement, width)
    for title, lines in (
        ("bytes", _figures(measurement.figures, width)),
        ("KV pool", _pools(measurement.pools, width)),
        ("allocator and device", _allocator(measurement.allocator, width)),
        ("captured graphs", _graphs(measurement.graphs, width)),
        ("host", _host(measurement.host, width)),
    ):
        first = next(lines, None)
        if first is not None:
            yield line()
            yield line(title, "head")
            yield first
            yield from lines
    text = settings_text(dict(measurement.settings), (measurement.engine or "",))
    if text:
        yield line()
        yield line("settings", "head")
        yield from wrapped(text, width, first="  ")
    if measurement.notes:
        yield line()
    for note in measurement.notes:
        style = "unsure" if note.startswith("contradiction") else "dim"
        yield from wrapped(note, width, first="note: ", rest="  ", style=style)


def _header(measurement: Measurement, width: int) -> Iterator[Line]:
    engine = " ".join(
        word for word in (measurement.engine or "unknown engine", measurement.engine_version) if word
    )
    parts = [measurement.model or "unknown model"]
    if measurement.model_revision:
        parts.append(measurement.model_revision)
    parts += [text for text in (measurement.architecture, engine, measurement.device) if text]
    if measurement.device_total_bytes is not None:
        parts.append(_size(measurement.device_total_bytes))
    sizes = [
        f"{name} {value}"
        for name, value in (
            ("tp", measurement.tp),
            ("pp", measurement.pp),
            ("dp", measurement.dp),
            ("ep", measurement.ep),
        )
        if value is not None
    ]
    parts += [" ".join(sizes)] if sizes else []
    yield from wrapped(" · ".join(parts), width, rest="  ", style="head")
    for source in measurement.sources:
        at = "" if source.from_s is None else f", {utc_text(source.from_s)}"
        if source.until_s is not None and source.from_s is not None and source.until_s - source.from_s >= 1:
            at += f", {source.until_s - source.from_s:,.0f} s"
        yield from wrapped(
            f"{source.name} ({source.kind}{at})", width, first="  from ", rest="    ", style="dim"
        )


def _figures(figures: Sequence[Figure], width: int) -> Iterator[Line]:
    rows = []
    for figure in figures:
        where = ranks_text(figure.ranks) if figure.ranks else ""
        when = figure.phase.value if figure.phase is not None else ""
        rows.append((_size(figure.bytes), figure.name, where, when))
    yield from _table(("size", "what", "rank", "phase"), rows, width, wide=1)


def _pools(pools: Sequence[MeasuredPool], width: int) -> Iterator[Line]:
    for pool in pools:
        parts = [] if not pool.kind else [pool.kind]
        if pool.tokens is not None:
            parts.append(f"{_range(pool.tokens.low, pool.tokens.expected, pool.tokens.high)} tokens")
        if pool.num_blocks is not None:
            count = _range(pool.num_blocks.low, pool.num_blocks.expected, pool.num_blocks.high)
            parts.append(f"{count} blocks" + (f" of {pool.block_size}" if pool.block_size else ""))
        if pool.bytes is not None:
            parts.append(_size(pool.bytes))
        if pool.max_concurrency is not None:
            parts.append(f"{pool.max_concurrency.expected:.2f} full requests")
        if pool.context_len is not None:
            parts.append(f"context {pool.context_len:,}")
        yield from wrapped(", ".join(parts), width, first="  ", rest="    ")


def _allocator(states: Sequence[AllocatorState], width: int) -> Iterator[Line]:
    rows = []
    for state in states:
        where = state.point or (state.phase.value if state.phase is not None else "")
        if state.ranks:
            where = f"{where} {ranks_text(state.ranks)}".strip()
        rows.append(
            (
                where or "-",
                _known(state.allocated_bytes),
                _known(state.reserved_bytes),
                _known(state.pool_free_bytes),
                _known(state.device_free_bytes),
                _known(state.device_total_bytes),
            )
        )
    titles = ("at", "allocated", "reserved", "free in it", "device free", "of")
    # A column that no source tells anything of says nothing.
    kept = [0, *(at for at in range(1, len(titles)) if any(row[at] != "?" for row in rows))]
    yield from _table(
        tuple(titles[at] for at in kept), [tuple(row[at] for at in kept) for row in rows], width, wide=0
    )


def _graphs(graphs: Sequence[GraphCapture], width: int) -> Iterator[Line]:
    shared = {True: "shared", False: "own", None: "?"}
    rows = [(graph.shape, _size(graph.increment_bytes), shared[graph.shared_pool]) for graph in graphs]
    yield from _table(("size", "took", "pool"), rows, width, wide=0)


def _host(host: Sequence[HostMemory], width: int) -> Iterator[Line]:
    rows = []
    for item in host:
        name = item.process if item.pid is None else f"{item.process} ({item.pid})"
        sizes = (item.rss_bytes, item.pss_bytes, item.shared_bytes, item.private_bytes)
        when = item.phase.value if item.phase is not None else ""
        rows.append((name, *("?" if size is None else _bytes(size) for size in sizes), when))
    yield from _table(("process", "RSS", "PSS", "shared", "private", "phase"), rows, width, wide=0)


def _table(
    titles: tuple[str, ...], rows: Sequence[tuple[str, ...]], width: int, *, wide: int
) -> Iterator[Line]:
    if not rows:
        return
    shown = list(dict.fromkeys(rows))
    left_out = len(shown) - MOST_ROWS
    cells = [tuple(f"  {row[0]}" if at == 0 else row[at] for at in range(len(row))) for row in shown]
    right = [at for at in range(len(titles)) if at != wide and all(_is_size(row[at]) for row in shown)]
    table = [(f"  {titles[0]}", *titles[1:]), *cells[: MOST_ROWS if left_out > 0 else None]]
    yield from columns(table, right=right, styles=("dim",), width=width, wrap_column=wide)
    if left_out > 0:
        yield line(f"  and {left_out:,} more, in the document (--json)", "dim")


def _is_size(text: str) -> bool:
    return text == "?" or text[:1].isdigit() or text[:1] in "-<"


def _range(low: int, expected: int, high: int) -> str:
    return f"{expected:,}" if low == high else f"{expected:,} ({low:,} to {high:,})"


def _known(size: ByteRange | None) -> str:
    return "?" if size is None else _bytes(size.expected)


def _size(size: ByteRange) -> str:
    """The expected size; its ends where they differ by more than its last place."""
    if size.is_exact or size.high - size.low <= abs(size.expected) // 100:
        return _bytes(size.expected)
    return f"{_bytes(size.expected)} ({_bytes(size.low)} to {_bytes(size.high)})"


def _bytes(size_bytes: int) -> str:
    """GiB with two decimals from one GiB on, MiB with one from one MiB on, KiB below."""
    if abs(size_bytes) >= GIB:
        return f"{size_bytes / GIB:.2f} GiB"
    if abs(size_bytes) >= MIB:
        return f"{size_bytes / MIB:.1f} MiB"
    return f"{size_bytes / KIB:.1f} KiB"
