"""What vLLM asks a device's generation for."""

from __future__ import annotations

from vramledger.hardware.catalogue import Device

ASSUMED_CAPABILITY = 80


def capability(device: Device) -> int:
    """Compute capability as a whole number (90 for "9.0").

    80 for a device that has none or whose generation is not known: the oldest that every path of the current
    releases supports.
    """
    major, dot, minor = (device.compute_capability or "").partition(".")
    if not dot or not major.isdigit() or not minor.isdigit():
        return ASSUMED_CAPABILITY
    return int(major) * 10 + int(minor)


def known_capability(device: Device) -> int | None:
    """Compute capability of an NVIDIA device whose generation is known, else None."""
    if device.vendor != "nvidia" or device.compute_capability is None:
        return None
    return capability(device)


def has_fp8_units(device: Device) -> bool:
    """Whether FP8 weights run without a weight-only kernel (Ada, Hopper and newer; CDNA 3 and newer)."""
    return device.vendor == "amd" or capability(device) >= 89
