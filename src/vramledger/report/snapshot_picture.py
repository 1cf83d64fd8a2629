"""An allocator snapshot as a picture: every block in its place, segments side by side, in SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from vramledger.report.snapshot_map import MOST_BLOCKS, interest, within
from vramledger.report.text import safe
from vramledger.telemetry.snapshots import (
    Block,
    BlockState,
    DeviceState,
    PoolState,
    Segment,
    Snapshot,
    device_states,
)
from vramledger.units import ceil_div, format_bytes

WIDTH = 1200
EDGE = 10
ROW = 16
GAP = 4
ROWS = 48  # of a device's memory, unless one segment needs a longer row
_FILLS = {BlockState.ALLOCATED: "#3b6ea8", BlockState.PENDING: "#d69b2d", BlockState.FREE: "#e3e3e3"}
_PINNED = "#c8563f"
_LABELS = (
    (_FILLS[BlockState.ALLOCATED], "allocated"),
    (_FILLS[BlockState.PENDING], "freed, still used by another stream"),
    (_PINNED, "free, pinned by what lies beside it"),
    (_FILLS[BlockState.FREE], "free, releasable"),
)


def snapshot_svg(snapshot: Snapshot, *, file: str) -> str:
    """The picture: a section for each pool, the segments with most pinned memory first, all of a device to one scale. Past
    60,000 blocks the rest is counted in a line. A block's title tells its size, state and frame."""
    parts = [_text(22, f"allocator snapshot {file}", size=15), *_key(30)]
    top = 70
    left = MOST_BLOCKS
    for device in device_states(snapshot):
        segments = [item for item in snapshot.segments if item.device == device.device]
        row_bytes = max(
            [ceil_div(device.total("reserved_bytes"), ROWS), 1, *(item.size_bytes for item in segments)]
        )
        for pool in device.pools:
            parts.append(_text(top, _heading(device, pool), size=12))
            top += 6
            members = sorted((item for item in segments if item.pool == pool.pool), key=interest)
            shown, left = within(members, left)
            for row in _rows(shown, row_bytes):
                for segment, offset_bytes in row:
                    parts += _strip(segment, top, offset_bytes, row_bytes)
                top += ROW + GAP
            if len(shown) < len(members):
                parts.append(_text(top + ROW - 4, f"and {len(members) - len(shown):,} segments more"))
                top += ROW + GAP
            top += 18
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" '
        f'viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{lines}\n</svg>\n'
    )


def _key(top: int) -> Iterator[str]:
    x = EDGE
    for fill, label in _LABELS:
        yield f'<rect x="{x}" y="{top}" width="12" height="12" fill="{fill}"/>'
        yield _text(top + 10, label, x=x + 16)
        x += 30 + 7 * len(label)


def _heading(device: DeviceState, pool: PoolState) -> str:
    name = f"private pool {pool.pool[0]}, {pool.pool[1]}" if pool.is_private else "default pool"
    return (
        f"device {device.device}, {name}: {format_bytes(pool.reserved_bytes)} reserved in {pool.num_segments:,} "
        f"segments, {format_bytes(pool.allocated_bytes + pool.pending_bytes)} allocated, "
        f"{format_bytes(pool.free_bytes)} free, largest run {format_bytes(pool.largest_free_run_bytes)}"
    )


def _rows(segments: Sequence[Segment], row_bytes: int) -> Iterator[list[tuple[Segment, int]]]:
    """Segments in order, as many beside each other as a row holds, with where each begins."""
    row: list[tuple[Segment, int]] = []
    used = 0
    for segment in segments:
        if row and used + segment.size_bytes > row_bytes:
            yield row
            row, used = [], 0
        row.append((segment, used))
        used += segment.size_bytes
    if row:
        yield row


def _strip(segment: Segment, top: int, offset_bytes: int, row_bytes: int) -> Iterator[str]:
    scale = (WIDTH - 2 * EDGE) / row_bytes
    pinned = not segment.is_releasable
    for block in segment.blocks:
        x = EDGE + (offset_bytes + block.address - segment.address) * scale
        fill = _PINNED if pinned and block.state is BlockState.FREE else _FILLS[block.state]
        yield (
            f'<rect x="{x:.2f}" y="{top}" width="{max(block.size_bytes * scale, 0.3):.2f}" height="{ROW}" '
            f'fill="{fill}"><title>{_title(block)}</title></rect>'
        )
    x = EDGE + offset_bytes * scale
    yield (
        f'<rect x="{x:.2f}" y="{top}" width="{segment.size_bytes * scale:.2f}" height="{ROW}" fill="none" '
        f'stroke="white" stroke-width="1"/>'
    )


def _title(block: Block) -> str:
    text = f"{block.size_bytes:,} bytes {block.state.value}"
    return escape(safe(f"{text} {block.frame}".rstrip()))


def _text(y: int, text: str, *, x: int = EDGE, size: int = 11) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(safe(text))}</text>'
