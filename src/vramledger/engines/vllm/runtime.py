"""What a worker takes beside tensors it knows of: context, communicators, kernels, allocator slack.

These are ranges from observation; each names how many observations and how they spread. The accuracy page of
the documentation compares them with start-up logs.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.surroundings import gib_bytes as _gib
from vramledger.engines.vllm.settings import Settings
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange
from vramledger.units import MIB


class Observed(Struct, frozen=True, kw_only=True):
    """A range and where it comes from."""

    bytes: ByteRange
    source: str


def context(device: Device) -> Observed:
    """Driver context and base libraries of one process."""
    if device.vendor == "cpu":
        return Observed(
            bytes=_gib(0.55, 0.63, 0.8),
            source="resident set of a worker with a model of a few MiB: 0.58 to 0.74 GiB in 3 runs of 0.32",
        )
    return Observed(
        bytes=_gib(0.3, 0.45, 0.65),
        source="300 to 600 MiB by driver; 'free on startup' is 0.41 to 0.61 GiB below the total in 4 logs",
    )


def collectives(settings: Settings, device: Device) -> Observed | None:
    """Communicators of one rank, None for a world of one.

    NCCL 0.2 to 0.8 GiB growing with ranks; custom all-reduce 20 to 35 MiB; symmetric memory 8 to 128 MiB by
    architecture and tp (vllm distributed/device_communicators).
    """
    if settings.plan.tp * settings.plan.pp * settings.plan.dp == 1:
        return None
    if device.vendor == "cpu":
        return Observed(
            bytes=_gib(0, 0.01, 0.05), source="gloo on the host: workers of tp 1 and 2 hold alike in 0.32"
        )
    symmetric = 0
    if settings.plan.tp > 1 and settings.version.since(11):
        table = {
            "hopper": {2: 64, 4: 32, 6: 64, 8: 64},
            "blackwell": {2: 8, 4: 32, 6: 128, 8: 128},
        }.get(device.architecture, {})
        symmetric = table.get(settings.plan.tp, 0) * MIB
    custom = ByteRange(20 * MIB, 28 * MIB, 35 * MIB) if settings.plan.tp > 1 else ByteRange.exact(0)
    return Observed(
        bytes=_gib(0.2, 0.4, 0.8) + custom + ByteRange.exact(symmetric),
        source="NCCL 0.2 to 0.8 GiB a rank, custom all-reduce 20 to 35 MiB, symmetric memory "
        f"{symmetric // MIB} MiB",
    )


def counts_context_in_budget(settings: Settings, device: Device) -> bool:
    """V1 up to 0.8.5 charges all memory in use on the device, the context and other processes included; the
    CPU back end charges the worker's resident set (v1/worker/cpu_worker.py)."""
    return device.vendor == "cpu" or (settings.v1 and not settings.version.since(9))


NVSWITCH_BYTES_PER_S = 900 * 10**9
FREE_MEMORY_ACCOUNTING_UNTIL = (6, 4)


def charges_reserved(settings: Settings) -> bool:
    """Whether memory that torch has reserved but not allocated counts as taken: where a version compares the
    device's free memory (V0 up to 0.6.3, V1 up to 0.8.5, 0.27 and newer) instead of asking torch."""
    if not settings.v1:
        return not settings.version.since(*FREE_MEMORY_ACCOUNTING_UNTIL)
    return not settings.version.since(9) or settings.version.since(27)


def loaded_kernels(settings: Settings, device: Device) -> Observed:
    """What profiling adds outside tensors: kernels, handles, lazily made communicators, fragmentation.

    Communicators with NVLink SHARP buffers are made at the first collective, so they fall into this growth on
    NVSwitch machines and not elsewhere.
    """
    version, multi = settings.version, settings.plan.tp > 1
    if device.vendor == "cpu":
        return Observed(bytes=ByteRange.exact(0), source="no device kernels on CPU")
    if device.vendor == "amd":
        if not version.since(15):
            return Observed(bytes=_gib(0.2, 0.6, 1.0), source="non-torch growth on MI300X in 0.9: 0.59 GiB")
        return Observed(
            bytes=_gib(0.4, 1.1, 1.7),
            source="left beside the other terms on MI300X in 0.23: 1.2 to 1.3 GiB, 6 logs of one machine",
        )
    if not settings.v1:
        if multi:
            return Observed(
                bytes=_gib(0.1, 0.3, 0.7),
                source="V0 non-torch growth at tp > 1: 0.20, 0.25, 0.40 to 0.52 GiB",
            )
        return Observed(
            bytes=_gib(0.0, 0.06, 0.25), source="V0 non-torch growth at tp 1: 0.00, 0.06, 0.16 GiB"
        )
    if multi and (device.link_bandwidth_bytes_per_s or 0) >= NVSWITCH_BYTES_PER_S:
        if settings.plan.tp == 2:
            return Observed(
                bytes=_gib(0.4, 1.3, 2.3), source="non-torch growth at tp 2 on NVSwitch: 0.54, 0.55, 2.07 GiB"
            )
        return Observed(
            bytes=_gib(1.5, 2.1, 2.5),
            source="non-torch growth at tp 4 and 8 on NVSwitch: 2.1 to 2.2 GiB, 4 logs",
        )
    if multi:
        return Observed(
            bytes=_gib(0.0, 0.1, 0.5), source="non-torch growth at tp 4 over PCIe: 0.0 to 0.1 GiB, 5 logs"
        )
    if not version.since(15):
        return Observed(
            bytes=_gib(0.0, 0.08, 0.65),
            source="non-torch growth at tp 1 in 0.9 to 0.13: 0.00 to 0.14 GiB in 6 logs, 0.57 in one",
        )
    if not version.since(27):
        return Observed(
            bytes=_gib(0.0, 0.15, 0.65),
            source="non-torch growth at tp 1 in 0.15 to 0.26: 0.1 to 0.25, once 0.63 GiB",
        )
    return Observed(
        bytes=_gib(0.1, 0.3, 0.6),
        source="consumed memory less weights and runner buffers since 0.27: 0.1 to 0.4 GiB in 3 logs",
    )


def cached_by_profile(settings: Settings, activation_bytes: int) -> Observed | None:
    """V0 up to 0.6.3 took the device's free memory after the profile run for the peak, torch's cached blocks
    included (worker/worker.py); None for versions that ask torch for its peak."""
    if settings.v1 or settings.version.since(*FREE_MEMORY_ACCOUNTING_UNTIL):
        return None
    return Observed(
        bytes=ByteRange(0, activation_bytes * 15 // 100, activation_bytes * 2),
        source="cached blocks of the profile run: 0 to 2 times its peak in 7 logs of 0.4 to 0.6.3",
    )
