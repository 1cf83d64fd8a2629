"""One look of nvidia-smi at its devices, and telling its formats apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from vramledger.errors import InputError
from vramledger.measurement import Measurement, MeasurementSource
from vramledger.telemetry.device_measurement import devices_measurement, whole_mib
from vramledger.telemetry.probes.nvml import DeviceReading

LIMIT_BYTES = 256 * 2**20


class SmiLook(Struct, frozen=True, kw_only=True):
    """What was printed at one moment. Sizes are whole MiB."""

    devices: tuple[DeviceReading, ...]
    at_s: float | None = None
    driver: str = ""


def smi_looks(body: bytes, source: str, *, columns: Sequence[str] = ()) -> tuple[SmiLook, ...]:
    """The looks in what nvidia-smi printed: its table, `-q`, `-q -x`, or the CSV of `--query-gpu` or
    `--query-compute-apps`; several where it printed in a loop. `columns` name those of a CSV without a header.

    Raises InputError for anything else.
    """
    from vramledger.telemetry.adapters.smi_csv import csv_looks
    from vramledger.telemetry.adapters.smi_query import query_looks
    from vramledger.telemetry.adapters.smi_table import table_looks
    from vramledger.telemetry.adapters.smi_xml import xml_looks

    if len(body) > LIMIT_BYTES:
        raise InputError(f"{source} has more than {LIMIT_BYTES:,} bytes", file=source)
    text = body.decode("utf-8", "replace")
    head = text[:20_000]
    if "<nvidia_smi_log" in head or head.lstrip().startswith("<?xml"):
        looks = xml_looks(body, source)
    elif "NVSMI LOG" in head:
        looks = query_looks(text)
    elif re.search(r"^\| NVIDIA-SMI ", head, re.MULTILINE):
        looks = table_looks(text)
    else:
        looks = csv_looks(text, source, columns=columns)
    if not looks:
        raise InputError(f"{source} looks like nvidia-smi's output, but lists no device", file=source)
    return looks


def smi_measurement(
    looks: Sequence[SmiLook], source: MeasurementSource, *, pids: Sequence[int] = ()
) -> Measurement:
    """The last look as a measurement, and of a loop what was least free in it. Raises ValueError where there is none."""
    last = looks[-1]
    notes = []
    if len(looks) > 1:
        notes = list(_least_free(looks, source.name))
    return devices_measurement(
        last.devices, source, sized=whole_mib, at_s=last.at_s, pids=pids, notes=tuple(notes)
    )


def _least_free(looks: Sequence[SmiLook], source: str) -> Iterator[str]:
    least: dict[str, int] = {}
    for look in looks:
        for device in look.devices:
            if device.free_bytes is not None:
                least[device.source] = min(least.get(device.source, device.free_bytes), device.free_bytes)
    for name, size in least.items():
        yield f"{source}: of {len(looks):,} looks {name.removeprefix('nvml:')} had at least {size:,} bytes free"
