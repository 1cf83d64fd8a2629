"""The device of this machine, by the name or the size that a plan takes."""

from __future__ import annotations

from vramledger.errors import DeviceError, SourceError
from vramledger.hardware.catalogue import find_device
from vramledger.telemetry.probes.nvml import Nvml
from vramledger.telemetry.probes.proc import host_memory_bytes


def this_machine() -> str | None:
    """The first accelerator's name where the catalogue has it, else its size; without one this host as "cpu:SIZE"; None where
    neither is told."""
    try:
        with Nvml() as nvml:
            devices = nvml.devices()
    except SourceError:
        devices = ()
    if devices:
        try:
            return find_device(devices[0].name).name
        except DeviceError:
            return f"custom:{devices[0].total_bytes}"
    total = host_memory_bytes().get("host_total_bytes")
    return None if total is None else f"cpu:{total}"
