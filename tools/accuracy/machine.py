"""The device of a reported start-up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from vramledger.errors import DeviceError
from vramledger.evidence import reported
from vramledger.hardware.catalogue import Device, devices, find_device
from vramledger.units import GIB


def case_device(row: Mapping[str, Any]) -> Device | None:
    """The card with the total the log printed; a class of cards where only its size is known."""
    gpu, flags, said = row["gpu"], row["flags"], row["reported"]
    total = gpu.get("total_gib")
    device: Device | None
    try:
        device = find_device(re.sub(r"\(.*\)", "", gpu["name"]).strip())
    except DeviceError:
        device = _class_of(gpu["name"], flags.get("max_num_batched_tokens"))
    usable, util = said.get("usable_gib"), flags.get("gpu_memory_utilization")
    if total is None and usable is not None and util is not None:
        total = usable / util
    precise = total is not None and abs(total - round(total)) > 0.004
    if device is None and total is None:
        return None
    if device is None:
        device = find_device(f"{total}GiB")
    if precise or device.name.startswith("custom:"):
        size = int(total * GIB)
        slack = int(0.005 * GIB)
        device = replace(
            device,
            total_bytes=size,
            total_low_bytes=size - slack,
            total_high_bytes=size + slack,
            evidence=reported("the case's own log"),
        )
    return device


def _class_of(name: str, batch: int | None) -> Device | None:
    """The middle of all catalogue cards sold with that many GB, None where the name gives no size."""
    match = re.search(r"(\d+) GB (?:class|card)", name)
    if match is None:
        return None
    size = int(match.group(1))
    alike = [device for device in devices() if device.marketing_gb == size and device.vendor == "nvidia"]
    if not alike:
        return find_device(f"{size}GiB")
    if size >= 70 and batch != 2048:
        return None  # an A100 and an H100 of one size run with different default batches
    if size >= 70:
        alike = [device for device in alike if "a100" in device.name.lower()]
    ordered = sorted(alike, key=lambda device: device.total_bytes)
    middle = ordered[len(ordered) // 2]
    return replace(
        middle,
        total_low_bytes=ordered[0].total_low_bytes,
        total_high_bytes=ordered[-1].total_high_bytes,
    )
