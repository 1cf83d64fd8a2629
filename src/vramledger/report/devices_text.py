"""The catalogue as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramledger.hardware.catalogue import Device
from vramledger.report.text import Line, columns, gib, line, wrapped


def devices_lines(catalogue: Iterable[Device], *, width: int = 80) -> Iterator[Line]:
    """A row for each device: total as torch reports it, spread, architecture, evidence."""
    rows = [("device", "GiB", "low", "high", "architecture", "evidence")]
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
    yield from columns(rows, right=(1, 2, 3), styles=("head",))
    yield line()
    yield from wrapped(
        "GiB is what torch reports as the device's total; aliases, rates and sources are in --json. Any other "
        "size: --device custom:79.19GiB.",
        width,
        style="dim",
    )
