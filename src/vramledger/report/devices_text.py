"""The catalogue as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramledger.hardware.catalogue import Device
from vramledger.report.text import WIDE, Line, columns, gib, line, wrapped


def devices_lines(catalogue: Iterable[Device], *, width: int = 80) -> Iterator[Line]:
    """A row for each device: total as torch reports it, spread, architecture (on a wide page), evidence."""
    head = ("device", "GiB", "low", "high", "architecture", "evidence")
    rows: list[tuple[str, ...]] = [head]
    for device in catalogue:
        exact = device.total_low_bytes == device.total_high_bytes
        rows.append(
            (
                device.name,
                gib(device.total_bytes),
                "" if exact else gib(device.total_low_bytes),
                "" if exact else gib(device.total_high_bytes),
                device.architecture,
                device.evidence.kind.value,
            )
        )
    kept = [i for i, name in enumerate(head) if width >= WIDE or name != "architecture"]
    rows = [tuple(row[i] for i in kept) for row in rows]
    yield from columns(rows, right=(1, 2, 3), styles=("head",), width=width)
    yield line()
    yield from wrapped(
        "GiB is what torch reports as the device's total; aliases, rates and sources are in --json. Any other "
        "size: --device custom:79.19GiB.",
        width,
        style="dim",
    )
