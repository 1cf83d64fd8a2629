"""The published snapshot: what `vramledger snapshot --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SCHEMA_VERSION, SchemaVersion
from vramledger.report.snapshot_map import MOST_BLOCKS, SnapshotMapDocument, snapshot_map
from vramledger.telemetry.snapshots import DeviceState, Fit, PoolState, Snapshot, device_states, would_serve


class SnapshotPoolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of the allocator. reserved = allocated + pending + free; free = releasable + pinned."""

    pool_id: Annotated[tuple[int, int], Meta(description="(0, 0) is the default pool; others are private.")]
    is_private: Annotated[
        bool, Meta(description="Graphs' pools and users' own: free memory serves nobody else.")
    ]
    num_segments: int
    reserved_bytes: int
    allocated_bytes: int
    pending_bytes: Annotated[int, Meta(description="Freed, still used by another stream.")]
    free_bytes: int
    releasable_bytes: Annotated[int, Meta(description="In segments that emptying the cache gives back.")]
    pinned_bytes: Annotated[int, Meta(description="Free beside something that is used.")]
    rounding_bytes: Annotated[int, Meta(description="In allocated blocks, beyond what was asked for.")]
    num_free_blocks: int
    largest_free_run_bytes: int
    fragmentation: Annotated[float, Meta(description="1 - largest free run / free; 0 where nothing is free.")]


class PinDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Allocations of one place in the program that lie beside free memory."""

    frame: str
    num_blocks: int
    held_bytes: int
    pinned_bytes: Annotated[int, Meta(description="Free bytes in segments where nobody else holds anything.")]


class FailedRequestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A request that failed, of the recorded history."""

    size_bytes: int
    device_free_bytes: int | None
    at_us: int | None
    frame: str


class FitDocumentPart(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a request of the default pool would be served; `how` is null where the driver's free memory must be known."""

    request_bytes: int
    how: str | None
    missing_bytes: int


class SnapshotDeviceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One device."""

    device: int
    expandable_segments: bool
    pools: tuple[SnapshotPoolDocument, ...]
    pins: tuple[PinDocument, ...]
    failures: tuple[FailedRequestDocument, ...]
    request: FitDocumentPart | None
    map: Annotated[SnapshotMapDocument | None, Meta(description="Every block; null without --blocks.")] = None


class SnapshotDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An allocator snapshot: who holds what, and in which pieces the rest is free."""

    schema_version: SchemaVersion
    kind: Literal["snapshot"]
    file: str
    devices: tuple[SnapshotDeviceDocument, ...]
    settings: dict[str, str]
    history_events: Annotated[dict[str, int], Meta(description="Recorded events by action.")]
    notes: tuple[str, ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request to try on every device. Where `device_free_bytes` is None, the last failed request's is taken."""

    request_bytes: int
    device_free_bytes: int | None = None

    def answer(self, snapshot: Snapshot, device: int) -> Fit:
        free = self.device_free_bytes
        if free is None:
            free = next(
                (item.device_free_bytes for item in reversed(snapshot.failures) if item.device == device),
                None,
            )
        return would_serve(snapshot, device, self.request_bytes, device_free_bytes=free)


def snapshot_document(
    snapshot: Snapshot, *, file: str, question: Question | None = None, with_blocks: bool = False
) -> SnapshotDocument:
    """The snapshot as it is published; `with_blocks` with every segment and block, up to 60,000 blocks."""
    room = MOST_BLOCKS
    devices = []
    for state in device_states(snapshot):
        found = snapshot_map(snapshot, state, room) if with_blocks else None
        room -= 0 if found is None else sum(len(segment.blocks) for segment in found.segments)
        devices.append(_device(snapshot, state, question, found))
    return SnapshotDocument(
        schema_version=SCHEMA_VERSION,
        kind="snapshot",
        file=file,
        devices=tuple(devices),
        settings=dict(snapshot.settings),
        history_events=dict(snapshot.history_events),
        notes=snapshot.notes,
    )


def _device(
    snapshot: Snapshot, device: DeviceState, question: Question | None, found: SnapshotMapDocument | None
) -> SnapshotDeviceDocument:
    fit = None if question is None else question.answer(snapshot, device.device)
    return SnapshotDeviceDocument(
        device=device.device,
        expandable_segments=device.is_expandable,
        pools=tuple(_pool(pool) for pool in device.pools),
        pins=tuple(
            PinDocument(
                frame=pin.frame,
                num_blocks=pin.num_blocks,
                held_bytes=pin.held_bytes,
                pinned_bytes=pin.pinned_bytes,
            )
            for pin in device.pins
        ),
        failures=tuple(
            FailedRequestDocument(
                size_bytes=item.size_bytes,
                device_free_bytes=item.device_free_bytes,
                at_us=item.at_us,
                frame=item.frame,
            )
            for item in snapshot.failures
            if item.device == device.device
        ),
        request=None
        if fit is None
        else FitDocumentPart(request_bytes=fit.request_bytes, how=fit.how, missing_bytes=fit.missing_bytes),
        map=found,
    )


def _pool(pool: PoolState) -> SnapshotPoolDocument:
    return SnapshotPoolDocument(
        pool_id=pool.pool,
        is_private=pool.is_private,
        num_segments=pool.num_segments,
        reserved_bytes=pool.reserved_bytes,
        allocated_bytes=pool.allocated_bytes,
        pending_bytes=pool.pending_bytes,
        free_bytes=pool.free_bytes,
        releasable_bytes=pool.releasable_bytes,
        pinned_bytes=pool.pinned_bytes,
        rounding_bytes=pool.rounding_bytes,
        num_free_blocks=pool.num_free_blocks,
        largest_free_run_bytes=pool.largest_free_run_bytes,
        fragmentation=round(pool.fragmentation, 6),
    )
