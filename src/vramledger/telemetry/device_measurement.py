"""Readings of devices, by NVML or by a tool that prints them, as a measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Owner
from vramledger.measurement import AllocatorState, Figure, Measurement, MeasurementSource
from vramledger.telemetry.probes.nvml import DeviceReading
from vramledger.units import MIB

_ALL_HELD = tuple(owner for owner in Owner if owner is not Owner.HEADROOM)
_Sized = Callable[[int], ByteRange]


def exact(size_bytes: int) -> ByteRange:
    """A size that was told in bytes."""
    return ByteRange.exact(size_bytes)


def whole_mib(size_bytes: int) -> ByteRange:
    """A size that was told in whole MiB, rounded either way or cut."""
    return ByteRange(max(size_bytes - MIB // 2, 0), size_bytes, size_bytes + MIB - 1)


def devices_measurement(
    readings: Sequence[DeviceReading],
    source: MeasurementSource,
    *,
    sized: _Sized = whole_mib,
    at_s: float | None = None,
    pids: Iterable[int] = (),
    notes: tuple[str, ...] = (),
) -> Measurement:
    """What devices say of themselves. With `pids`, only devices on which these processes hold memory, and what they hold.

    A device with MIG instances is told by its instances, which are what an engine runs on.
    """
    wanted = frozenset(pids)
    split = {reading.index for reading in readings if reading.instance is not None}
    shown = [reading for reading in readings if reading.instance is not None or reading.index not in split]
    told = list(notes)
    if wanted:
        with_them = [
            reading for reading in shown if any(process.pid in wanted for process in reading.processes)
        ]
        if not with_them and any(reading.processes for reading in shown):
            told.append(
                f"{source.name}: no device lists one of the processes {_some(wanted)} (in a container the driver "
                "may number them as the host does); all devices are told"
            )
        shown = with_them or shown
    names = {reading.name for reading in shown if reading.name}
    if len(names) > 1:
        told.append(f"{source.name}: devices of several kinds: {', '.join(sorted(names))}")
    totals = [reading.total_bytes for reading in shown if reading.total_bytes is not None]
    return Measurement(
        sources=(source,),
        device=min(names) if len(names) == 1 else None,
        device_total_bytes=sized(min(totals)) if totals else None,
        figures=tuple(figure for reading in shown for figure in _figures(reading, source, sized, wanted)),
        allocator=tuple(
            state for reading in shown if (state := _state(reading, source, sized, at_s)) is not None
        ),
        notes=tuple(told),
    )


def _state(
    reading: DeviceReading, source: MeasurementSource, sized: _Sized, at_s: float | None
) -> AllocatorState | None:
    if reading.free_bytes is None:
        return None
    return AllocatorState(
        evidence=measured(_named(reading, source)),
        at_s=at_s,
        device_free_bytes=sized(reading.free_bytes),
        device_total_bytes=None if reading.total_bytes is None else sized(reading.total_bytes),
    )


def _figures(
    reading: DeviceReading, source: MeasurementSource, sized: _Sized, wanted: frozenset[int]
) -> Iterator[Figure]:
    """What the processes hold, together; where none is listed, all that is in use, whoever holds it."""
    held = [
        process.used_bytes
        for process in reading.processes
        if process.used_bytes is not None and (not wanted or process.pid in wanted)
    ]
    if held:
        size = sized(sum(held))
        spread = len(held) - 1  # each process was rounded by itself
        yield Figure(
            owners=_ALL_HELD,
            name=f"held by {len(held)} process{'es' if spread else ''} on the device",
            bytes=ByteRange(
                max(size.low - spread * (size.expected - size.low), 0),
                size.expected,
                size.high + spread * (size.high - size.expected),
            ),
            evidence=measured(_named(reading, source)),
        )
    elif reading.used_bytes:
        yield Figure(
            owners=_ALL_HELD,
            name="in use on the device",
            bytes=sized(reading.used_bytes),
            evidence=measured(_named(reading, source)),
        )


def _named(reading: DeviceReading, source: MeasurementSource) -> str:
    place = f"device {reading.index}" + ("" if reading.instance is None else f" instance {reading.instance}")
    return f"{source.name} {place}" + (f" ({reading.name})" if reading.name else "")


def _some(pids: frozenset[int]) -> str:
    shown = ", ".join(str(pid) for pid in sorted(pids)[:5])
    return shown + (", ..." if len(pids) > 5 else "")
