"""Devices as NVIDIA's management library tells them, through its own binding (the extra `nvml`: nvidia-ml-py).

What a device says of itself is `DeviceReading`; a device or an instance that refuses a question leaves that value None.
NVML counts the driver's own reserve as used in its first memory call and apart in its second (driver 510 on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct

from vramledger.errors import SourceError
from vramledger.observation import Sample

EXTRA = "pip install 'vramledger[nvml]'"


class DeviceProcess(Struct, frozen=True, kw_only=True):
    """What one process holds on a device. `used_bytes` is None where the driver does not tell (Windows' display driver
    model, another container's process without the right)."""

    pid: int
    name: str = ""
    used_bytes: int | None = None


class DeviceReading(Struct, frozen=True, kw_only=True):
    """One device, or one MIG instance of it (`instance` its number), at one moment.

    `used_bytes` leaves out `reserved_bytes` where the driver tells the reserve, and has it in where that is None.
    """

    index: int
    name: str = ""
    uuid: str = ""
    instance: int | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    processes: tuple[DeviceProcess, ...] = ()

    @property
    def source(self) -> str:
        """What samples of it name as theirs."""
        return f"nvml:{self.index}" if self.instance is None else f"nvml:{self.index}/mig:{self.instance}"


class Nvml:
    """NVML, opened. Raises SourceError, saying why, where there is none; use as a context."""

    name = "nvml"

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise SourceError(
                f"no NVML here: its binding is not installed ({EXTRA})", source="nvml"
            ) from None
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as problem:
            raise SourceError(f"no NVML here: {problem}", source="nvml") from None

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the driver."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def driver(self) -> str:
        """The driver's version, "" where it does not tell."""
        return _text(self._asked(self._nvml.nvmlSystemGetDriverVersion))

    def devices(self) -> tuple[DeviceReading, ...]:
        """Every device and MIG instance now. Raises SourceError where even their count is refused."""
        count = self._asked(self._nvml.nvmlDeviceGetCount)
        if not isinstance(count, int):
            raise SourceError("NVML does not tell how many devices there are", source="nvml")
        return tuple(reading for index in range(count) for reading in self._device(index))

    def read(self, at_s: float) -> list[Sample]:
        """The devices as samples."""
        return [sample for device in self.devices() for sample in device_samples(device, at_s)]

    def _device(self, index: int) -> Iterator[DeviceReading]:
        handle = self._asked(self._nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return
        yield self._reading(handle, index, None)
        mode = self._asked(self._nvml.nvmlDeviceGetMigMode, handle)
        if not mode or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            return
        for number in range(self._asked(self._nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            instance = self._asked(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if instance is not None:
                yield self._reading(instance, index, number)

    def _reading(self, handle: Any, index: int, instance: int | None) -> DeviceReading:
        nvml = self._nvml
        memory = self._asked(nvml.nvmlDeviceGetMemoryInfo, handle, version=nvml.nvmlMemory_v2)
        reserved = None if memory is None else int(memory.reserved)
        if memory is None:
            memory = self._asked(nvml.nvmlDeviceGetMemoryInfo, handle)
        return DeviceReading(
            index=index,
            instance=instance,
            name=_text(self._asked(nvml.nvmlDeviceGetName, handle)),
            uuid=_text(self._asked(nvml.nvmlDeviceGetUUID, handle)),
            total_bytes=None if memory is None else int(memory.total),
            used_bytes=None if memory is None else int(memory.used),
            free_bytes=None if memory is None else int(memory.free),
            reserved_bytes=reserved,
            processes=tuple(self._processes(handle)),
        )

    def _processes(self, handle: Any) -> Iterator[DeviceProcess]:
        """Processes that compute or draw, each once: a process of both kinds is listed twice with the same bytes."""
        seen: set[int] = set()
        nvml = self._nvml
        for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            for process in self._asked(ask, handle) or ():
                pid = int(process.pid)
                if pid in seen:
                    continue
                seen.add(pid)
                used = process.usedGpuMemory
                yield DeviceProcess(
                    pid=pid,
                    name=_text(self._asked(nvml.nvmlSystemGetProcessName, pid))[:200],
                    used_bytes=None if used is None else int(used),
                )

    def _asked(self, ask: Callable[..., Any], *arguments: object, **named: object) -> Any:
        """The answer, None where the driver is too old for the question or refuses it."""
        try:
            return ask(*arguments, **named)
        except (self._nvml.NVMLError, ValueError):
            return None


def device_samples(device: DeviceReading, at_s: float) -> list[Sample]:
    """One device as samples: device_total_bytes, device_used_bytes, device_free_bytes, driver_reserved_bytes, and
    process_device_bytes of each process."""
    sizes = {
        "device_total_bytes": device.total_bytes,
        "device_used_bytes": device.used_bytes,
        "device_free_bytes": device.free_bytes,
        "driver_reserved_bytes": device.reserved_bytes,
    }
    found = [
        Sample(at_s=at_s, source=device.source, name=name, value=size, label=device.name)
        for name, size in sizes.items()
        if size is not None
    ]
    return found + [
        Sample(
            at_s=at_s,
            source=device.source,
            name="process_device_bytes",
            value=process.used_bytes,
            pid=process.pid,
            label=process.name,
        )
        for process in device.processes
        if process.used_bytes is not None
    ]


def _text(value: object) -> str:
    """Old bindings answer with bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
