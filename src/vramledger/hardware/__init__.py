"""Accelerators: what their drivers report and what their makers state."""

from vramledger.hardware.catalogue import Device, devices, find_device

__all__ = ["Device", "devices", "find_device"]
