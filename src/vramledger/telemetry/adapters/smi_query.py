"""The text of `nvidia-smi -q`: titles and "name : value" lines, set in by how deep they lie.

Seen formats: drivers 470 to 570 (`Reserved` under `FB Memory Usage` from 510 on).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from vramledger.telemetry.adapters.smi_reading import SmiLook
from vramledger.telemetry.adapters.smi_values import (
    LONGEST_NAME,
    printed_count,
    printed_size,
    printed_time,
)
from vramledger.telemetry.probes.nvml import DeviceProcess, DeviceReading

LONGEST_LINE = 2_000
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_SIZES = {
    "Total": "total_bytes",
    "Used": "used_bytes",
    "Free": "free_bytes",
    "Reserved": "reserved_bytes",
}


class _Device(Struct):
    """A device while its lines come."""

    uuid: str
    number: int
    name: str = ""
    sizes: dict[str, int | None] = field(default_factory=dict)
    instances: list[tuple[int | None, dict[str, int | None]]] = field(default_factory=list)
    processes: list[DeviceProcess] = field(default_factory=list)


def query_looks(text: str) -> tuple[SmiLook, ...]:
    """The looks in the text: each begins with "NVSMI LOG"."""
    found: list[SmiLook] = []
    for part in text.split("NVSMI LOG")[1:]:
        found += _look(part)
    return tuple(found)


def _look(text: str) -> Iterator[SmiLook]:
    at_s: float | None = None
    driver = ""
    devices: list[_Device] = []
    titles: list[tuple[int, str]] = []
    for line in text.splitlines():
        if len(line) > LONGEST_LINE or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        gpu = _GPU.fullmatch(line) if depth == 0 else None
        if gpu is not None:
            devices.append(_Device(uuid=gpu.group(1), number=len(devices)))
            titles = []
            continue
        while titles and titles[-1][0] >= depth:
            titles.pop()
        name, colon, value = line.partition(" : ")
        name, value = name.strip(), value.strip()
        if not colon:
            titles.append((depth, name.rstrip(":").strip()))
            continue
        if not devices:
            at_s = printed_time(value) if name == "Timestamp" else at_s
            driver = value[:40] if name == "Driver Version" else driver
            continue
        _take(devices[-1], [title for _, title in titles], name, value)
        if name in ("Process ID", "Index"):
            titles.append((depth, name))
    if devices:
        yield SmiLook(
            devices=tuple(reading for device in devices for reading in _readings(device)),
            at_s=at_s,
            driver=driver,
        )


def _take(device: _Device, titles: list[str], name: str, value: str) -> None:
    if not titles and name == "Product Name":
        device.name = value[:LONGEST_NAME]
    elif "MIG Devices" in titles:
        if name == "Index":
            device.instances.append((printed_count(value), {}))
        elif titles[-1] == "FB Memory Usage" and name in _SIZES and device.instances:
            device.instances[-1][1][_SIZES[name]] = printed_size(value)
    elif titles == ["FB Memory Usage"] and name in _SIZES:
        device.sizes[_SIZES[name]] = printed_size(value)
    elif "Processes" in titles:
        pid = printed_count(value) if name == "Process ID" else None
        if pid is not None:
            device.processes.append(DeviceProcess(pid=pid))
        elif name == "Name" and device.processes:
            device.processes[-1] = replace(device.processes[-1], name=value[:LONGEST_NAME])
        elif name == "Used GPU Memory" and device.processes:
            device.processes[-1] = replace(device.processes[-1], used_bytes=printed_size(value))


def _readings(device: _Device) -> Iterator[DeviceReading]:
    whole = DeviceReading(
        index=device.number, name=device.name, uuid=device.uuid, processes=tuple(device.processes)
    )
    yield replace(whole, **device.sizes)
    for instance, sizes in device.instances:
        if instance is not None:
            part = DeviceReading(index=device.number, instance=instance, name=device.name)
            yield replace(part, **sizes)
