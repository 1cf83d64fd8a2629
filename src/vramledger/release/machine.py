"""The device of this machine, by the name or the size that a plan takes."""

from __future__ import annotations

import os
from pathlib import Path

from vramledger.errors import DeviceError, SourceError
from vramledger.hardware.catalogue import find_device
from vramledger.telemetry.probes.nvml import Nvml
from vramledger.telemetry.probes.proc import host_memory_bytes
from vramledger.units import KIB

NODES = Path("/sys/devices/system/node")
ONE_NODE = frozenset({"vllm"})
"""Engines whose CPU platform counts the memory of one NUMA node as its device (vllm/utils/cpu_resource_utils.py)."""


def this_machine(engine: str = "") -> str | None:
    """The first accelerator's name where the catalogue has it, else its size; without one what `engine` counts as the memory of
    this host, as "cpu:SIZE"; None where neither is told."""
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
    if engine in ONE_NODE:
        total = node_total_bytes() or total
    return None if total is None else f"cpu:{total}"


def node_total_bytes(nodes: Path = NODES) -> int | None:
    """Memory of the NUMA node of the first processor that this process may run on; None where the kernel tells of none."""
    first = min(os.sched_getaffinity(0), default=0)
    for node in sorted(nodes.glob("node[0-9]*")):
        try:
            if (node / f"cpu{first}").exists():
                text = (node / "meminfo").read_text(encoding="ascii")
                words = next(line for line in text.splitlines() if "MemTotal:" in line).split()
                return int(words[-2]) * KIB
        except (OSError, ValueError, StopIteration, IndexError):
            continue
    return None
