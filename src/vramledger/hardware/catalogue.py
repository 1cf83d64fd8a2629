"""Devices by name: their memory as the framework sees it, and the rates their makers state.

The facts are in `devices.json`; `about` there says what each key means. An H100 "80GB" is not 80 GiB and
not 80 GB: torch finds about 79.19 GiB, because the driver keeps a part. That total is what an engine's
utilisation knob multiplies, so it is what `Device.total_bytes` holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import DeviceError, either
from vramledger.evidence import Evidence, assumed, reported
from vramledger.ledger import ByteRange
from vramledger.units import GIB, MIB, TIB, format_gib, parse_bytes

SMALLEST_CUSTOM_BYTES = 256 * MIB
LARGEST_CUSTOM_BYTES = 4 * TIB
_LONGEST_NAME = 100

_FILE = Path(__file__).with_name("devices.json")
_CUSTOM_PREFIX = "custom:"
_CPU_PREFIX = "cpu:"
_BARE_SIZE = re.compile(r"\d[\d.]*\s*[kmgt]i?b?", re.IGNORECASE)
_MARKS = re.compile(r"\((?:r|tm)\)", re.IGNORECASE)
_WORDS = re.compile(r"[a-z]+|\d+")
# Words a person leaves out and a driver puts in; none of them tells two devices apart.
_NOISE = frozenset(
    [
        "nvidia",
        "geforce",
        "rtx",
        "gtx",
        "rx",
        "tesla",
        "amd",
        "radeon",
        "instinct",
        "intel",
        "huawei",
        "gpu",
        "graphics",
        "generation",
        "edition",
    ]
)


class Device(Struct, frozen=True, kw_only=True):
    """One accelerator as one rank sees it.

    `total_bytes` is the total that torch reports; low and high are the spread over drivers and hosts.
    `driver_name` is what nvidia-smi or torch prints (engines pick defaults by it); `marketing_gb` the size
    on the box, never used as bytes. `smi_total_bytes` is nvidia-smi's larger total, with the driver's part.
    `architecture` is one instruction set: "blackwell" is the data-centre parts alone, "blackwell-sm120" the
    RTX cards. `half_flops_per_s` is dense bf16, fp16 where the hardware lacks bf16; bandwidths of links count
    both directions. A figure that is not known is None. `evidence` speaks of `total_bytes`; rates are data
    sheet figures.
    """

    name: str
    driver_name: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    compute_capability: str | None
    marketing_gb: int | None
    total_bytes: int
    total_low_bytes: int
    total_high_bytes: int
    smi_total_bytes: int | None
    sm_count: int | None
    memory_bandwidth_bytes_per_s: int | None
    half_flops_per_s: int | None
    fp8_flops_per_s: int | None
    link_bandwidth_bytes_per_s: int | None
    pcie_bandwidth_bytes_per_s: int | None
    unified_memory: bool
    evidence: Evidence

    @property
    def total(self) -> ByteRange:
        """The device's memory as a range, bytes."""
        return ByteRange(self.total_low_bytes, self.total_bytes, self.total_high_bytes)


def find_device(text: str) -> Device:
    """The device a person names, or one of a given size.

    Case, punctuation and brand words do not matter ("h100-80gb", "NVIDIA H100 80GB HBM3"). "80GiB" and
    "custom:79.19GiB" are a device of exactly that size whose architecture is unknown, "cpu:24GiB" a host
    that an engine's CPU back end runs on. Raises DeviceError for
    an unknown name (with the closest ones), for a name that devices of different memory share ("A100"), and
    for a size outside 256 MiB to 4 TiB, and for what is no text.
    """
    if not isinstance(text, str):
        raise DeviceError(
            f"device must be a name or a size such as 'custom:79.19GiB', not {repr(text)[:80]}",
            device=repr(text)[:80],
        )
    wanted = text.strip()
    if len(wanted) > _LONGEST_NAME:
        raise DeviceError(
            f"a device name of {len(wanted)} characters is too long", device=wanted[:_LONGEST_NAME]
        )
    if wanted.lower().startswith(_CUSTOM_PREFIX):
        return _custom(wanted[len(_CUSTOM_PREFIX) :].strip())
    if wanted.lower().startswith(_CPU_PREFIX):
        size = wanted[len(_CPU_PREFIX) :].strip()
        host = assumed("memory of the host's node as given", size)
        return replace(
            _custom(size), name=f"{_CPU_PREFIX}{size}", vendor="cpu", architecture="cpu", evidence=host
        )
    names = _names_by_key().get(_key(wanted), ())
    if not names and _BARE_SIZE.fullmatch(wanted):
        return _custom(wanted)
    if not names:
        raise _unknown(wanted)
    if len(names) > 1:
        raise DeviceError(
            f"{wanted!r} can be {either(names)}; name one of them", device=wanted, closest=names
        )
    return _by_name()[names[0]]


def devices() -> tuple[Device, ...]:
    """Every device of the catalogue, in the file's order."""
    return tuple(_by_name().values())


def _custom(size: str) -> Device:
    try:
        total_bytes = parse_bytes(size)
    except ValueError as error:
        raise DeviceError(f"device size {error}", device=size) from None
    if size.isdecimal() and 0 < total_bytes <= LARGEST_CUSTOM_BYTES // GIB:
        raise DeviceError(f"a device of {size} bytes? Write the unit: {_CUSTOM_PREFIX}{size}GiB", device=size)
    if not SMALLEST_CUSTOM_BYTES <= total_bytes <= LARGEST_CUSTOM_BYTES:
        raise DeviceError(
            f"a device of {size} is outside {format_gib(SMALLEST_CUSTOM_BYTES)} to {format_gib(LARGEST_CUSTOM_BYTES)}",
            device=size,
        )
    return Device(
        name=f"{_CUSTOM_PREFIX}{size}",
        driver_name="",
        aliases=(),
        vendor="unknown",
        architecture="unknown",
        compute_capability=None,
        marketing_gb=None,
        total_bytes=total_bytes,
        total_low_bytes=total_bytes,
        total_high_bytes=total_bytes,
        smi_total_bytes=None,
        sm_count=None,
        memory_bandwidth_bytes_per_s=None,
        half_flops_per_s=None,
        fp8_flops_per_s=None,
        link_bandwidth_bytes_per_s=None,
        pcie_bandwidth_bytes_per_s=None,
        unified_memory=False,
        evidence=assumed("size as given; the device itself is not known", size),
    )


def _unknown(wanted: str) -> DeviceError:
    from difflib import get_close_matches

    keys = _names_by_key()
    wanted_key = _key(wanted)
    near = get_close_matches(wanted_key, keys, n=6, cutoff=0.6)
    near += [key for key in keys if wanted_key and key.startswith(wanted_key)]
    closest = tuple(dict.fromkeys(name for key in near for name in keys[key]))[:4]
    hint = f" Did you mean {either(closest)}?" if closest else ""
    return DeviceError(
        f"unknown device {wanted!r}.{hint} A device can also be given by its size, as in custom:79.19GiB",
        device=wanted,
        closest=closest,
    )


def _key(text: str) -> str:
    words = _WORDS.findall(_MARKS.sub(" ", text).lower())
    return "".join(word for word in words if word not in _NOISE)


@cache
def _names_by_key() -> Mapping[str, tuple[str, ...]]:
    """Names by what a person may type; a name with the box size appended ("L4 24GB") yields to a stated alias."""
    stated: dict[str, tuple[str, ...]] = {}
    sized: dict[str, tuple[str, ...]] = {}
    for device in devices():
        keys = dict.fromkeys(_key(alias) for alias in (device.name, device.driver_name, *device.aliases))
        for key in keys:
            stated[key] = (*stated.get(key, ()), device.name)
        for key in dict.fromkeys(f"{key}{device.marketing_gb}gb" for key in keys):
            sized[key] = (*sized.get(key, ()), device.name)
    return sized | stated


@cache
def _by_name() -> Mapping[str, Device]:
    content = json.loads(_FILE.read_bytes())
    rows = {row["name"]: row for row in content["devices"]}
    return {name: _device(row, rows, content["rules"]) for name, row in rows.items()}


def _device(row: Mapping[str, Any], rows: Mapping[str, Any], rules: Mapping[str, Any]) -> Device:
    low_mib, expected_mib, high_mib = _total_mib(row, rows, rules)
    smi_mib = row.get("smi_total_mib")
    return Device(
        name=row["name"],
        driver_name=row["driver_name"],
        aliases=tuple(row["aliases"]),
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=row["compute_capability"],
        marketing_gb=row.get("memory_gb"),
        total_bytes=expected_mib * MIB,
        total_low_bytes=low_mib * MIB,
        total_high_bytes=high_mib * MIB,
        smi_total_bytes=None if smi_mib is None else smi_mib * MIB,
        sm_count=row.get("sm_count"),
        memory_bandwidth_bytes_per_s=_scaled(row.get("memory_gb_per_s"), 10**9),
        half_flops_per_s=_scaled(row.get("half_tflops"), 10**12),
        fp8_flops_per_s=_scaled(row.get("fp8_tflops"), 10**12),
        link_bandwidth_bytes_per_s=_scaled(row.get("link_gb_per_s"), 10**9),
        pcie_bandwidth_bytes_per_s=_scaled(row.get("pcie_gb_per_s"), 10**9),
        unified_memory=row.get("unified_memory", False),
        evidence=_evidence(row, rules),
    )


def _total_mib(
    row: Mapping[str, Any], rows: Mapping[str, Any], rules: Mapping[str, Any]
) -> tuple[int, int, int]:
    if "total_mib" in row:
        low, expected, high = row["total_mib"]
        return low, expected, high
    if "like" in row:
        return _total_mib(rows[row["like"]], rows, rules)
    rule = rules[row["rule"]]
    base_mib = row["memory_gb"] * (GIB // MIB) if rule["base"] == "memory_gb" else row[rule["base"]]
    low, expected, high = (
        base_mib * per_mille // 1000 - minus_mib
        for per_mille, minus_mib in zip(rule["per_mille"], rule["minus_mib"], strict=True)
    )
    return low, expected, high


def _evidence(row: Mapping[str, Any], rules: Mapping[str, Any]) -> Evidence:
    if "rule" in row:
        return assumed(row["source"], rules[row["rule"]]["text"])
    if "like" in row:
        return assumed(row["source"], f"the total of {row['like']}, a card of the same memory")
    return reported(row["source"])


def _scaled(value: float | None, factor: int) -> int | None:
    return None if value is None else round(value * factor)
