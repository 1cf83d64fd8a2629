"""An allocator snapshot as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.report.bar import shares
from vramledger.report.snapshot_document import Question
from vramledger.report.text import Line, Span, columns, gib, line, wrapped
from vramledger.telemetry.snapshots import DeviceState, Fit, PoolState, Snapshot, device_states
from vramledger.units import counted, format_bytes

MOST_POOLS = 12
_PARTS = (
    ("A", "allocated_bytes", "weights"),
    ("P", "pending_bytes", "unsure"),
    ("x", "pinned_bytes", "bad"),
    (".", "releasable_bytes", "dim"),
)
_LEGEND = (
    "A allocated, P freed but still used by another stream, x free beside something used (pinned), . free and releasable; "
    "fragmentation is 1 - largest free run / free"
)
_MEANING = {
    "free block": "yes, by a free block",
    "new segment": "yes, by a new segment of the driver's free memory",
    "after emptying the cache": "yes, once whole free segments are given back (the allocator does so by itself)",
    "only with expandable segments": "no, although enough is free in pieces; with expandable_segments:True yes",
    "not at all": "no",
}


def snapshot_lines(
    snapshot: Snapshot, *, file: str, question: Question | None = None, width: int = 80
) -> Iterator[Line]:
    """Each device: a bar, its pools, who pins free memory, requests that failed, and whether one would be served."""
    yield from wrapped(f"allocator snapshot {file}", width, rest="  ", style="head")
    devices = device_states(snapshot)
    if not devices:
        yield line("it holds no segment", "unsure")
    for device in devices:
        yield line()
        yield from _device(snapshot, device, question, width)
    if devices:
        yield line()
        yield from wrapped(_LEGEND, width, style="dim")
    if snapshot.settings:
        text = ", ".join(f"{name} {value}" for name, value in snapshot.settings)
        yield from wrapped(text, width, first="settings: ", rest="  ", style="dim")
    for note in snapshot.notes:
        yield from wrapped(note, width, first="note: ", rest="  ", style="dim")


def _device(snapshot: Snapshot, device: DeviceState, question: Question | None, width: int) -> Iterator[Line]:
    kind = ", expandable segments" if device.is_expandable else ""
    yield from wrapped(
        f"device {device.device}: {gib(device.total('reserved_bytes'))} GiB reserved = "
        f"{gib(device.total('allocated_bytes'))} allocated + {gib(device.total('pending_bytes'))} pending + "
        f"{gib(device.total('free_bytes'))} free ({gib(device.total('releasable_bytes'))} releasable, "
        f"{gib(device.total('pinned_bytes'))} pinned){kind}",
        width,
        rest="  ",
        style="head",
    )
    yield _bar(device, width)
    shown = device.pools[:MOST_POOLS]
    rows = [
        ("  pool", "reserved", "allocated", "free", "pinned", "largest run", "fragm."),
        *(_pool_row(pool) for pool in shown),
    ]
    yield from columns(rows, right=range(1, 7), styles=("dim",), width=width)
    rest = device.pools[MOST_POOLS:]
    if rest:
        held = sum(pool.reserved_bytes for pool in rest)
        yield line(f"  and {counted(len(rest), 'private pool')} more with {format_bytes(held)}", "dim")
    if device.private_bytes:
        yield from wrapped(
            f"{format_bytes(device.private_bytes)} in private pools (captured graphs, pools of users): "
            f"what is free there serves nobody else",
            width,
            first="  ",
        )
    yield from _pins(device, width)
    failures = [item for item in snapshot.failures if item.device == device.device]
    for item in failures[-3:]:
        free = (
            ""
            if item.device_free_bytes is None
            else f", the driver had {format_bytes(item.device_free_bytes)} free"
        )
        where = f" ({item.frame})" if item.frame else ""
        yield from wrapped(
            f"failed: a request of {format_bytes(item.size_bytes)}{free}{where}",
            width,
            first="  ",
            rest="    ",
            style="bad",
        )
    if len(failures) > 3:
        yield line(f"  {len(failures) - 3:,} earlier failed requests", "dim")
    if question is not None:
        yield from _answer(question.answer(snapshot, device.device), width)


def _pool_row(pool: PoolState) -> tuple[str, ...]:
    name = f"{pool.pool[0]}, {pool.pool[1]}" if pool.is_private else "default"
    return (
        f"  {name}",
        format_bytes(pool.reserved_bytes),
        format_bytes(pool.allocated_bytes + pool.pending_bytes),
        format_bytes(pool.free_bytes),
        format_bytes(pool.pinned_bytes),
        format_bytes(pool.largest_free_run_bytes),
        f"{pool.fragmentation:.1%}",
    )


def _pins(device: DeviceState, width: int) -> Iterator[Line]:
    pins = [pin for pin in device.pins if pin.pinned_bytes]
    if not pins:
        return
    yield line("  what alone keeps free memory from being given back", "head")
    for pin in pins[:5]:
        name = pin.frame or "no frame recorded"
        yield from wrapped(
            f"{format_bytes(pin.pinned_bytes)} by {counted(pin.num_blocks, 'block')} of "
            f"{format_bytes(pin.held_bytes)}: {name}",
            width,
            first="    ",
            rest="      ",
        )


def _answer(fit: Fit, width: int) -> Iterator[Line]:
    size = format_bytes(fit.request_bytes)
    if fit.how is None:
        text = f"{size} more: cannot be told; no free block is large enough, and what the driver has free is not in "
        text += "the file (--device-free SIZE)"
        yield from wrapped(text, width, first="  ", rest="    ", style="unsure")
        return
    missing = f", {format_bytes(fit.missing_bytes)} missing" if fit.missing_bytes else ""
    good = fit.how in ("free block", "new segment", "after emptying the cache")
    yield from wrapped(
        f"{size} more: {_MEANING[fit.how]}{missing}",
        width,
        first="  ",
        rest="    ",
        style="good" if good else "bad",
    )


def _bar(device: DeviceState, width: int) -> Line:
    counts = shares([device.total(field) for _, field, _ in _PARTS], width - 4)
    spans: list[Span] = [
        (fill * count, style) for (fill, _, style), count in zip(_PARTS, counts, strict=True) if count
    ]
    return (("  [", ""), *spans, ("]", ""))
