"""What a worker process takes on a device whatever it serves: the driver's context, communicators.

Ranges from observation, each with how many observations there were and how they spread.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange
from vramledger.units import GIB


class Surroundings(Struct, frozen=True, kw_only=True):
    """A range and where it comes from."""

    bytes: ByteRange
    source: str


def gib_bytes(low: float, expected: float, high: float) -> ByteRange:
    """A range observed in GiB, in bytes."""
    return ByteRange(int(low * GIB), int(expected * GIB), int(high * GIB))


def driver_context(device: Device) -> Surroundings:
    """Driver context and base libraries of one process."""
    if device.vendor == "cpu":
        return Surroundings(
            bytes=gib_bytes(0.4, 0.6, 0.8),
            source="resident set of a serving process with a model of a few MiB",
        )
    return Surroundings(
        bytes=gib_bytes(0.3, 0.45, 0.65),
        source="300 to 600 MiB by driver; free memory at start-up is 0.41 to 0.61 GiB below the total in 4 logs",
    )


def communicators(world: int) -> Surroundings | None:
    """NCCL of one rank, None for a world of one."""
    if world == 1:
        return None
    return Surroundings(
        bytes=gib_bytes(0.2, 0.4, 0.8), source="NCCL 0.2 to 0.8 GiB a rank, growing with ranks"
    )
