"""Allocator snapshots of `torch.cuda.memory._dump_snapshot`: read without torch and without running what a pickle may hold."""

from vramledger.telemetry.snapshots.fragmentation import (
    DeviceState,
    Fit,
    Pin,
    PoolState,
    device_states,
    would_serve,
)
from vramledger.telemetry.snapshots.reading import read_snapshot, snapshot_of
from vramledger.telemetry.snapshots.snapshot import Block, BlockState, FailedRequest, Segment, Snapshot
from vramledger.telemetry.snapshots.states import allocator_states

__all__ = [
    "Block",
    "BlockState",
    "DeviceState",
    "FailedRequest",
    "Fit",
    "Pin",
    "PoolState",
    "Segment",
    "Snapshot",
    "allocator_states",
    "device_states",
    "read_snapshot",
    "snapshot_of",
    "would_serve",
]
