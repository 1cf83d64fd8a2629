"""dcgm-exporter's metrics: frame buffer memory of each device in MiB.

Source: dcgm-exporter etc/default-counters.csv and dcp-metrics-included.csv (DCGM_FI_DEV_FB_FREE, _USED, _TOTAL, _RESERVED, all
in MiB; dcgm_fields.h 250 to 253). _USED leaves out _RESERVED.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.measurement import Measurement, MeasurementSource
from vramledger.observation import Sample
from vramledger.telemetry.adapters.smi_values import LONGEST_NAME
from vramledger.telemetry.device_measurement import devices_measurement, whole_mib
from vramledger.telemetry.exposition import Exposition, parse_exposition
from vramledger.telemetry.probes.nvml import DeviceReading, device_samples
from vramledger.telemetry.web import checked_url, fetch_body
from vramledger.units import MIB

_FIELDS = {
    "DCGM_FI_DEV_FB_TOTAL": "total_bytes",
    "DCGM_FI_DEV_FB_USED": "used_bytes",
    "DCGM_FI_DEV_FB_FREE": "free_bytes",
    "DCGM_FI_DEV_FB_RESERVED": "reserved_bytes",
}
_MOST_MIB = 2**30


def dcgm_devices(exposition: Exposition) -> tuple[DeviceReading, ...]:
    """The devices, and MIG instances by their GPU_I_ID, in the order in which they are named.

    Where the total is not exported (it is not by default), it is used + free + reserved, if all three are.
    """
    found: dict[tuple[int, int | None], dict[str, int | str]] = {}
    for reading in exposition.readings:
        field = _FIELDS.get(reading.name)
        if field is None or not 0 <= reading.value < _MOST_MIB:
            continue
        number, instance = reading.labels.get("gpu", ""), reading.labels.get("GPU_I_ID", "")
        key = (_whole(number) or 0, _whole(instance))
        values = found.setdefault(key, {})
        values[field] = round(reading.value) * MIB
        values["name"] = reading.labels.get("modelName", "")[:LONGEST_NAME]
        values["uuid"] = reading.labels.get("UUID", "")[:LONGEST_NAME]
    return tuple(_device(index, instance, values) for (index, instance), values in found.items())


def read_dcgm(body: bytes, source: str) -> tuple[DeviceReading, ...]:
    """The devices in an answer of dcgm-exporter. Raises InputError where it has no memory of any."""
    exposition = parse_exposition(body)
    devices = dcgm_devices(exposition)
    if not devices:
        raise InputError(
            f"{source} holds no DCGM_FI_DEV_FB_* metric ({len(exposition.readings):,} metrics in all)",
            file=source,
        )
    return devices


def dcgm_measurement(body: bytes, source: MeasurementSource, *, at_s: float | None = None) -> Measurement:
    """dcgm-exporter's answer as a measurement. Raises InputError as `read_dcgm` does."""
    return devices_measurement(read_dcgm(body, source.name), source, sized=whole_mib, at_s=at_s)


class DcgmProbe:
    """A dcgm-exporter as a source of samples. Raises FlagError for what is no address."""

    def __init__(self, url: str) -> None:
        checked = checked_url(url)
        self._url = checked if checked.rstrip("/").endswith("metrics") else f"{checked.rstrip('/')}/metrics"
        self.name = f"dcgm:{self._url}"

    def read(self, at_s: float) -> list[Sample]:
        return list(self._samples(at_s))

    def _samples(self, at_s: float) -> Iterator[Sample]:
        for device in dcgm_devices(parse_exposition(fetch_body(self._url))):
            yield from device_samples(device, at_s)


def _device(index: int, instance: int | None, values: dict[str, int | str]) -> DeviceReading:
    sizes = {field: size for field in _FIELDS.values() if isinstance(size := values.get(field), int)}
    if "total_bytes" not in sizes and len(sizes) == len(_FIELDS) - 1:
        sizes["total_bytes"] = sum(sizes.values())
    device = DeviceReading(index=index, instance=instance, name=str(values["name"]), uuid=str(values["uuid"]))
    return replace(device, **sizes)


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
