"""A snapshot as the four values of an allocator, for reconciliation and diagnosis."""

from __future__ import annotations

from vramledger.evidence import measured
from vramledger.ledger import ByteRange
from vramledger.measurement import AllocatorState
from vramledger.telemetry.snapshots.fragmentation import DeviceState, device_states
from vramledger.telemetry.snapshots.snapshot import Snapshot


def allocator_states(snapshot: Snapshot, *, where: str) -> tuple[AllocatorState, ...]:
    """One state a device. A snapshot does not know what the driver has free; where its history holds a failed request, the last one's
    `device_free` is taken, and said so in `point`."""
    return tuple(_state(snapshot, device, where) for device in device_states(snapshot))


def _state(snapshot: Snapshot, device: DeviceState, where: str) -> AllocatorState:
    failures = [item for item in snapshot.failures if item.device == device.device]
    last = failures[-1] if failures else None
    free = last.device_free_bytes if last is not None else None
    point = f"device {device.device}"
    if last is not None:
        point += f", after a request of {last.size_bytes:,} bytes failed"
    return AllocatorState(
        evidence=measured(f"allocator snapshot {where}"),
        point=point,
        at_s=last.at_us / 1e6 if last is not None and last.at_us is not None else None,
        allocated_bytes=ByteRange.exact(device.total("allocated_bytes") + device.total("pending_bytes")),
        reserved_bytes=ByteRange.exact(device.total("reserved_bytes")),
        pool_free_bytes=ByteRange.exact(device.total("free_bytes")),
        device_free_bytes=None if free is None else ByteRange.exact(free),
        largest_free_run_bytes=ByteRange.exact(
            max((pool.largest_free_run_bytes for pool in device.pools if not pool.is_private), default=0)
        ),
    )
