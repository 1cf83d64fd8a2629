"""Segments and blocks of an allocator snapshot, as they are published and in which order they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from vramledger.telemetry.snapshots import BlockState, DeviceState, Segment, Snapshot

MOST_BLOCKS = 60_000


class BlockDocument(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A block as a list: where it begins in its segment, its size, its state, and its place in the program as a number of `frames`, -1 where
    none was recorded."""

    offset_bytes: int
    size_bytes: int
    state: BlockState
    frame: int


class SegmentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A range that the allocator took from the driver, with its blocks by address."""

    address: Annotated[str, Meta(description="Hexadecimal: it may be more than a number of JSON holds.")]
    pool_id: tuple[int, int]
    size_bytes: int
    is_releasable: Annotated[
        bool, Meta(description="Nothing in it is used: emptying the cache gives it back.")
    ]
    blocks: tuple[BlockDocument, ...]


class SnapshotMapDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Segments with their blocks, in each pool those with most pinned memory first."""

    frames: Annotated[tuple[str, ...], Meta(description="Places in the program that allocated.")]
    segments: tuple[SegmentDocument, ...]
    num_segments_left_out: Annotated[int, Meta(description="Past 60,000 blocks of a snapshot.")]


def snapshot_map(snapshot: Snapshot, device: DeviceState, most_blocks: int) -> SnapshotMapDocument:
    """The segments of one device, pool by pool, as many as have `most_blocks` blocks together."""
    frames: dict[str, int] = {}
    listed: list[SegmentDocument] = []
    left_out = 0
    for pool in device.pools:
        members = [
            item for item in snapshot.segments if item.device == device.device and item.pool == pool.pool
        ]
        shown, most_blocks = within(sorted(members, key=interest), most_blocks)
        left_out += len(members) - len(shown)
        listed += [_segment(item, frames) for item in shown]
    return SnapshotMapDocument(frames=tuple(frames), segments=tuple(listed), num_segments_left_out=left_out)


def _segment(segment: Segment, frames: dict[str, int]) -> SegmentDocument:
    return SegmentDocument(
        address=f"{segment.address:#x}",
        pool_id=segment.pool,
        size_bytes=segment.size_bytes,
        is_releasable=segment.is_releasable,
        blocks=tuple(
            BlockDocument(
                offset_bytes=block.address - segment.address,
                size_bytes=block.size_bytes,
                state=block.state,
                frame=frames.setdefault(block.frame, len(frames)) if block.frame else -1,
            )
            for block in segment.blocks
        ),
    )


def interest(segment: Segment) -> tuple[int, int, int]:
    """A key that puts segments with most pinned memory first, then the largest."""
    pinned = 0 if segment.is_releasable else segment.bytes_in(BlockState.FREE)
    return (-pinned, -segment.size_bytes, segment.address)


def within(segments: Sequence[Segment], most_blocks: int) -> tuple[list[Segment], int]:
    """The first segments that have no more than `most_blocks` blocks together, and how many more there is room for."""
    shown = []
    for segment in segments:
        if len(segment.blocks) > most_blocks:
            break
        most_blocks -= len(segment.blocks)
        shown.append(segment)
    return shown, most_blocks
