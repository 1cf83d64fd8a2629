"""The CSV of `nvidia-smi --query-gpu=... --format=csv` and `--query-compute-apps=...`, with and without units.

Source: `nvidia-smi --help-query-gpu` and `--help-query-compute-apps`, drivers 470 to 570. Fields are parted by ", " and
are not quoted. Without a header the columns must be named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.telemetry.adapters.smi_reading import SmiLook
from vramledger.telemetry.adapters.smi_values import (
    LONGEST_NAME,
    printed_count,
    printed_size,
    printed_time,
)
from vramledger.telemetry.probes.nvml import DeviceProcess, DeviceReading

_SIZES = {
    "memory.total": "total_bytes",
    "memory.used": "used_bytes",
    "memory.free": "free_bytes",
    "memory.reserved": "reserved_bytes",
}
_APP_SIZES = ("used_gpu_memory", "used_memory")
_GPU_NAMES = ("gpu_uuid", "uuid", "gpu_bus_id", "pci.bus_id", "gpu_serial", "gpu_name", "name")
_KNOWN = frozenset((*_SIZES, *_APP_SIZES, *_GPU_NAMES, "index", "timestamp", "pid", "process_name"))
LONGEST_LINE = 10_000


def csv_looks(text: str, source: str, *, columns: Sequence[str] = ()) -> tuple[SmiLook, ...]:
    """The looks in a CSV, one for each time, or for each return to a device that was already listed.

    Raises InputError where no column is known and where a row has another number of fields than the header.
    """
    rows = _rows(text, source)
    header = [_column(name) for name in columns]
    if not header:
        first = next(rows, None)
        if first is None:
            raise InputError(f"{source} is empty", file=source)
        header = [_column(field) for field in first[1]]
        if not any(name in _SIZES or name in _APP_SIZES for name in header):
            raise InputError(
                f"{source} is no output of nvidia-smi with a header that names memory: its first line is "
                f"{', '.join(first[1])[:80]!r}; name the columns of a CSV without header by --smi-columns",
                file=source,
                line=first[0],
            )
    unknown = [name for name in header if name not in _KNOWN] if columns else []
    if unknown and not any(name in _SIZES or name in _APP_SIZES for name in header):
        raise InputError(f"--smi-columns names no column of memory that is known: {unknown[0]!r}")
    is_apps = "pid" in header and any(name in _APP_SIZES for name in header)
    looks: list[SmiLook] = []
    current: list[DeviceReading] = []
    at_s: float | None = None
    for number, fields in rows:
        if [_column(field) for field in fields] == header:
            continue
        if len(fields) < len(header):
            raise InputError(
                f"{source}:{number} has {len(fields)} fields, its header {len(header)}",
                file=source,
                line=number,
            )
        # A process's name may hold ", "; it is the column that takes what is too much.
        row = dict(zip(header, _fitted(fields, header), strict=True))
        time_s = printed_time(row.get("timestamp", ""))
        device = _device(row, len(current) if not is_apps else 0, is_apps=is_apps)
        known = next((at for at, other in enumerate(current) if _identity(other) == _identity(device)), None)
        if current and (time_s != at_s or (known is not None and not is_apps)):
            looks.append(SmiLook(devices=tuple(current), at_s=at_s))
            current, known = [], None
            device = _device(row, 0, is_apps=is_apps)
        at_s = time_s
        if known is not None:
            current[known] = _with_process(current[known], device.processes)
        else:
            current.append(device if "index" in row else _numbered(device, len(current)))
    if current:
        looks.append(SmiLook(devices=tuple(current), at_s=at_s))
    return tuple(looks)


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(
                f"{source}:{number} is too long for a row of nvidia-smi", file=source, line=number
            )
        if line.strip():
            yield number, [field.strip() for field in line.split(",")]


def _column(field: str) -> str:
    """ "memory.total [MiB]" is the column memory.total."""
    return field.partition("[")[0].strip().lower()


def _fitted(fields: list[str], header: list[str]) -> list[str]:
    extra = len(fields) - len(header)
    if extra == 0:
        return fields
    at = next((header.index(name) for name in ("process_name", "name", "gpu_name") if name in header), None)
    if at is None:
        return fields[: len(header)]
    return [*fields[:at], ", ".join(fields[at : at + extra + 1]), *fields[at + extra + 1 :]]


def _device(row: dict[str, str], index: int, *, is_apps: bool) -> DeviceReading:
    uuid = next((row[name] for name in _GPU_NAMES[:5] if row.get(name)), "")[:LONGEST_NAME]
    name = next((row[column] for column in ("gpu_name", "name") if row.get(column)), "")[:LONGEST_NAME]
    processes: tuple[DeviceProcess, ...] = ()
    pid = printed_count(row.get("pid", ""))
    if is_apps and pid is not None:
        used = next((printed_size(row[column]) for column in _APP_SIZES if column in row), None)
        process = row.get("process_name", "")[:LONGEST_NAME]
        processes = (DeviceProcess(pid=pid, name=process, used_bytes=used),)
    number = printed_count(row.get("index", ""))
    device = DeviceReading(
        index=index if number is None else number, name=name, uuid=uuid, processes=processes
    )
    sizes = {field: printed_size(row[column]) for column, field in _SIZES.items() if column in row}
    return replace(device, **sizes)


def _identity(device: DeviceReading) -> tuple[str, int]:
    return (device.uuid, 0) if device.uuid else ("", device.index)


def _numbered(device: DeviceReading, index: int) -> DeviceReading:
    return replace(device, index=index)


def _with_process(device: DeviceReading, more: tuple[DeviceProcess, ...]) -> DeviceReading:
    return replace(device, processes=(*device.processes, *more))
