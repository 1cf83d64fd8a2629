"""The CSV of `nvidia-smi --query-gpu=... --format=csv` and `--query-compute-apps=...`, with and without units.

Source: `nvidia-smi --help-query-gpu` and `--help-query-compute-apps`, drivers 470 to 570. Fields are parted by ", " and
are not quoted. Without a header the columns must be named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field
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
MOST_ROWS = 20_000


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
        header = [_column(text) for text in first[1]]
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
    current = _Look()
    for number, fields in rows:
        if [_column(text) for text in fields] == header:
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
        device = _device(row, len(current.devices) if not is_apps else 0, is_apps=is_apps)
        if current.devices and (time_s != current.at_s or current.has(device)):
            looks.append(current.whole())
            current = _Look()
            device = _device(row, 0, is_apps=is_apps)
        current.at_s = time_s
        current.add(device, numbered="index" in row)
        if len(current.rows) > MOST_ROWS:
            raise InputError(
                f"{source}:{number} lists more devices or processes at once than any machine has", file=source
            )
    if current.devices:
        looks.append(current.whole())
    return tuple(looks)


_Identity = tuple[str, int]


class _Look(Struct):
    """Rows of one moment: devices by what names them, and which of them, or of their processes, were listed."""

    devices: dict[_Identity, DeviceReading] = field(default_factory=dict)
    processes: dict[_Identity, list[DeviceProcess]] = field(default_factory=dict)
    rows: set[tuple[_Identity, int]] = field(default_factory=set)
    at_s: float | None = None

    def has(self, device: DeviceReading) -> bool:
        """Whether the same thing was listed already, so that this is the next moment."""
        return self._row(device) in self.rows

    def add(self, device: DeviceReading, *, numbered: bool) -> None:
        identity = _identity(device)
        if identity not in self.devices:
            self.devices[identity] = device if numbered else replace(device, index=len(self.devices))
        self.processes.setdefault(identity, []).extend(device.processes)
        self.rows.add(self._row(device))

    def whole(self) -> SmiLook:
        devices = (
            replace(device, processes=tuple(self.processes[identity]))
            for identity, device in self.devices.items()
        )
        return SmiLook(devices=tuple(devices), at_s=self.at_s)

    @staticmethod
    def _row(device: DeviceReading) -> tuple[_Identity, int]:
        return _identity(device), device.processes[0].pid if device.processes else 0


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(
                f"{source}:{number} is too long for a row of nvidia-smi", file=source, line=number
            )
        if line.strip():
            yield number, [part.strip() for part in line.split(",")]


def _column(text: str) -> str:
    """ "memory.total [MiB]" is the column memory.total."""
    return text.partition("[")[0].strip().lower()


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
    sizes = {name: printed_size(row[column]) for column, name in _SIZES.items() if column in row}
    return replace(device, **sizes)


def _identity(device: DeviceReading) -> _Identity:
    return (device.uuid, 0) if device.uuid else ("", device.index)
