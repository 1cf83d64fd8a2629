"""`rocm-smi --showmeminfo vram --json` and `amd-smi metric --mem-usage --json`.

rocm-smi writes {"card0": {"VRAM Total Memory (B)": "21458059264", "VRAM Total Used Memory (B)": "27856896"}}; amd-smi a list (6.x),
or an object with it under "gpu_data" (7.x), of {"gpu": 0, "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, ...}}, whose
MB are MiB (an MI300X's 192 GiB are 196,592 of them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from vramledger.errors import InputError
from vramledger.telemetry.adapters.smi_values import LONGEST_NAME, MOST_BYTES
from vramledger.telemetry.probes.nvml import DeviceReading
from vramledger.units import GIB, KIB, MIB

LIMIT_BYTES = 64 * 2**20
MOST_DEVICES = 4_096
_CARD = re.compile(r"card([0-9]{1,4})")
_BINARY = {"B": 1, "KB": KIB, "MB": MIB, "GB": GIB}


def looks_like_amd(body: bytes) -> bool:
    """Whether a text is worth reading as one of the two."""
    head = body[:100_000]
    return b"VRAM Total" in head or b'"mem_usage"' in head


def amd_devices(body: bytes, source: str) -> tuple[DeviceReading, ...]:
    """The devices; sizes of rocm-smi are exact, those of amd-smi whole MiB. Raises InputError for what is neither's JSON."""
    if len(body) > LIMIT_BYTES:
        raise InputError(f"{source} has more than {LIMIT_BYTES:,} bytes", file=source)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise InputError(f"{source} is no JSON: {problem}", file=source) from None
    if isinstance(value, dict) and isinstance(value.get("gpu_data"), list):
        value = value["gpu_data"]
    found = tuple(_rocm(value) if isinstance(value, dict) else _amd(value) if isinstance(value, list) else ())
    if not found:
        raise InputError(
            f"{source} is neither rocm-smi --showmeminfo vram --json nor amd-smi metric --mem-usage --json",
            file=source,
        )
    return found


def is_exact(body: bytes) -> bool:
    """Whether the sizes are bytes, not whole MiB."""
    return b"Memory (B)" in body[:100_000]


def _rocm(value: dict[str, Any]) -> Iterator[DeviceReading]:
    for name, card in list(value.items())[:MOST_DEVICES]:
        match = _CARD.fullmatch(name)
        if match is None or not isinstance(card, dict):
            continue
        total, used = (
            _whole(card.get("VRAM Total Memory (B)")),
            _whole(card.get("VRAM Total Used Memory (B)")),
        )
        if total is None:
            continue
        series = card.get("Card Series") or card.get("Card series") or ""
        yield DeviceReading(
            index=int(match.group(1)),
            name=str(series)[:LONGEST_NAME],
            total_bytes=total,
            used_bytes=used,
            free_bytes=None if used is None or used > total else total - used,
        )


def _amd(value: list[Any]) -> Iterator[DeviceReading]:
    for position, device in enumerate(value[:MOST_DEVICES]):
        memory = device.get("mem_usage") if isinstance(device, dict) else None
        if not isinstance(memory, dict):
            continue
        total = _sized(memory.get("total_vram"))
        if total is None:
            continue
        number = device.get("gpu")
        yield DeviceReading(
            index=number if isinstance(number, int) and 0 <= number < MOST_DEVICES else position,
            total_bytes=total,
            used_bytes=_sized(memory.get("used_vram")),
            free_bytes=_sized(memory.get("free_vram")),
        )


def _sized(value: object) -> int | None:
    if not isinstance(value, dict):
        return None
    count, unit = value.get("value"), value.get("unit", "MB")
    if not isinstance(count, int | float) or unit not in _BINARY:
        return None
    size = count * _BINARY[unit]
    return round(size) if 0 <= size < MOST_BYTES else None


def _whole(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
