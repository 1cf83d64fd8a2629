"""The table that `nvidia-smi` prints without arguments, once or in a loop.

Seen formats: drivers 418 to 570; the columns of MIG are there from 450 on. A name that is too long for its column is cut
by nvidia-smi with "...".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from vramledger.telemetry.adapters.smi_reading import SmiLook
from vramledger.telemetry.adapters.smi_values import printed_time
from vramledger.telemetry.probes.nvml import DeviceProcess, DeviceReading
from vramledger.units import MIB

LONGEST_LINE = 400
MOST_DEVICES = 4_096
_DRIVER = re.compile(r"Driver Version: ([0-9.]{1,20})")
_DEVICE = re.compile(r"\| {1,5}([0-9]{1,3}) {1,4}(\S.{0,80}?) {1,60}(?:On|Off|N/A|TCC|WDDM|MCDM) {0,4}\|")
_MEMORY = re.compile(r"\| {1,30}([0-9]{1,9})MiB ?/ {1,9}([0-9]{1,9})MiB {0,4}\|")
_MIG = re.compile(
    r"\| {1,5}([0-9]{1,3}) {1,6}[0-9]{1,3} {1,6}[0-9]{1,3} {1,6}([0-9]{1,3}) {1,4}\| {1,30}([0-9]{1,9})MiB ?/ {1,9}([0-9]{1,9})MiB"
)
_PROCESS = re.compile(
    r"\| {1,6}([0-9]{1,3}) {1,6}(?:(?:N/A|[0-9]{1,3}) {1,6}(?:N/A|[0-9]{1,3}) {1,6})?([0-9]{1,9}) {1,8}([CGM+]{1,5}) {1,4}(\S.{0,200}?) {1,200}(?:([0-9]{1,9})MiB|N/A) {0,4}\|"
)


def table_looks(text: str) -> tuple[SmiLook, ...]:
    """The looks in the text: each begins with the line that names the driver."""
    looks: list[SmiLook] = []
    before: str = ""
    current: list[str] = []
    at_s: float | None = None
    for line in text.splitlines():
        if "| NVIDIA-SMI " in line[:40]:
            if current:
                looks += _look(current, at_s)
            current, at_s = [], printed_time(before)
        if len(line) <= LONGEST_LINE:
            current.append(line)
            if line.strip() and line.lstrip()[0] not in "+|":
                before = line
    return (*looks, *_look(current, at_s))


def _look(lines: list[str], at_s: float | None) -> Iterator[SmiLook]:
    driver = ""
    devices: dict[int, DeviceReading] = {}
    instances: list[DeviceReading] = []
    processes: dict[int, list[DeviceProcess]] = {}
    waiting: DeviceReading | None = None
    in_processes = False
    for line in lines:
        if not driver and (found := _DRIVER.search(line)) is not None:
            driver = found.group(1)
        in_processes = in_processes or "| Processes:" in line
        if in_processes:
            process = _PROCESS.match(line)
            if process is not None:
                size = process.group(5)
                processes.setdefault(int(process.group(1)), []).append(
                    DeviceProcess(
                        pid=int(process.group(2)),
                        name=process.group(4).strip(),
                        used_bytes=None if size is None else int(size) * MIB,
                    )
                )
            continue
        mig = _MIG.match(line)
        if mig is not None:
            instances.append(
                _sized(DeviceReading(index=int(mig.group(1)), instance=int(mig.group(2))), mig, 3)
            )
            continue
        device = _DEVICE.match(line)
        if device is not None:
            waiting = DeviceReading(index=int(device.group(1)), name=device.group(2).strip())
            continue
        memory = _MEMORY.search(line)
        if memory is not None and waiting is not None and len(devices) < MOST_DEVICES:
            devices[waiting.index] = _sized(waiting, memory, 1)
            waiting = None
    if devices:
        yield SmiLook(
            devices=tuple(
                replace(device, processes=tuple(processes.get(index, ())))
                for index, device in devices.items()
            )
            + tuple(instances),
            at_s=at_s,
            driver=driver,
        )


def _sized(device: DeviceReading, match: re.Match[str], group: int) -> DeviceReading:
    """Used and total; the table does not print what is free, which lacks the driver's reserve besides."""
    return replace(
        device, used_bytes=int(match.group(group)) * MIB, total_bytes=int(match.group(group + 1)) * MIB
    )
