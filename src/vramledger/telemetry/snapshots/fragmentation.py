"""What a snapshot says of the memory that is free inside the allocator: how much, in which pools, in how large runs,
held by whom, and whether a request would be served.

Source: torch c10/cuda/CUDACachingAllocator.cpp (`get_free_block`, `alloc_block`, `release_cached_blocks`): a request is served by
the smallest free block of its pool and stream that is large enough, else by a new segment of the driver's free memory, else, when
whole free segments have been given back, by a new segment once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from vramledger.engines.allocator import MIN_BLOCK, SMALL, segment_bytes
from vramledger.telemetry.snapshots.snapshot import DEFAULT_POOL, Block, BlockState, Segment, Snapshot
from vramledger.units import round_up

MOST_PINS = 10


class PoolState(Struct, frozen=True, kw_only=True):
    """One pool of one device. Reserved = allocated + pending + free; free = releasable + pinned.

    `releasable_bytes` lie in segments that emptying the cache gives back; `pinned_bytes` lie beside something that is used.
    `rounding_bytes` is what allocated blocks have beyond what was asked for. `largest_free_run_bytes` is the largest piece that a
    request could get. `fragmentation` is 1 - largest run / free, 0 where nothing is free.
    """

    pool: tuple[int, int]
    num_segments: int
    reserved_bytes: int
    allocated_bytes: int
    pending_bytes: int
    free_bytes: int
    releasable_bytes: int
    pinned_bytes: int
    rounding_bytes: int
    num_free_blocks: int
    largest_free_run_bytes: int

    @property
    def is_private(self) -> bool:
        """Whether only its owner can use what is free in it: graphs, and pools that users made."""
        return self.pool != DEFAULT_POOL

    @property
    def fragmentation(self) -> float:
        return 1 - self.largest_free_run_bytes / self.free_bytes if self.free_bytes else 0.0


class Pin(Struct, frozen=True, kw_only=True):
    """Who keeps free bytes from being given back: allocations of one place in the program, the bytes they hold, and the free bytes
    in segments where nobody else holds anything."""

    frame: str
    num_blocks: int
    held_bytes: int
    pinned_bytes: int


class DeviceState(Struct, frozen=True, kw_only=True):
    """One device of a snapshot: its pools, the default one first, and what pins free memory, most first."""

    device: int
    pools: tuple[PoolState, ...]
    pins: tuple[Pin, ...]
    is_expandable: bool

    def total(self, field: str) -> int:
        """The sum of a PoolState's byte field over the pools."""
        return sum(getattr(pool, field) for pool in self.pools)

    @property
    def private_bytes(self) -> int:
        """Reserved by private pools: graphs' memory, and pools of users."""
        return sum(pool.reserved_bytes for pool in self.pools if pool.is_private)


class Fit(Struct, frozen=True, kw_only=True):
    """Whether a request of the default pool would be served now. `how` is "free block", "new segment", "after emptying the cache",
    "only with expandable segments" or "not at all"; None where the driver's free memory would have to be known.
    `missing_bytes` is what the last way lacks."""

    request_bytes: int
    how: str | None
    missing_bytes: int = 0


def device_states(snapshot: Snapshot) -> tuple[DeviceState, ...]:
    """Every device of a snapshot, in order."""
    return tuple(_device_state(snapshot, device) for device in snapshot.devices)


def _device_state(snapshot: Snapshot, device: int) -> DeviceState:
    segments = [segment for segment in snapshot.segments if segment.device == device]
    pools = sorted({segment.pool for segment in segments}, key=lambda pool: (pool != DEFAULT_POOL, pool))
    return DeviceState(
        device=device,
        pools=tuple(_pool_state(pool, [item for item in segments if item.pool == pool]) for pool in pools),
        pins=_pins(segments),
        is_expandable=any(segment.is_expandable for segment in segments),
    )


def _pool_state(pool: tuple[int, int], segments: list[Segment]) -> PoolState:
    free = sum(segment.bytes_in(BlockState.FREE) for segment in segments)
    releasable = sum(segment.size_bytes for segment in segments if segment.is_releasable)
    return PoolState(
        pool=pool,
        num_segments=len(segments),
        reserved_bytes=sum(segment.size_bytes for segment in segments),
        allocated_bytes=sum(segment.bytes_in(BlockState.ALLOCATED) for segment in segments),
        pending_bytes=sum(segment.bytes_in(BlockState.PENDING) for segment in segments),
        free_bytes=free,
        releasable_bytes=releasable,
        pinned_bytes=free - releasable,
        rounding_bytes=sum(
            block.size_bytes - block.requested_bytes
            for segment in segments
            for block in segment.blocks
            if block.state is BlockState.ALLOCATED
        ),
        num_free_blocks=sum(
            block.state is BlockState.FREE for segment in segments for block in segment.blocks
        ),
        largest_free_run_bytes=max((run for item in segments for run in free_runs(item.blocks)), default=0),
    )


def free_runs(blocks: Iterable[Block]) -> list[int]:
    """Sizes of the free stretches of one segment; neighbours that are both free are one."""
    runs: list[int] = []
    end = None
    for block in blocks:
        if block.state is not BlockState.FREE:
            end = None
        elif end == block.address:
            runs[-1] += block.size_bytes
            end = block.address + block.size_bytes
        else:
            runs.append(block.size_bytes)
            end = block.address + block.size_bytes
    return runs


def _pins(segments: list[Segment]) -> tuple[Pin, ...]:
    blocks: Counter[str] = Counter()
    held: Counter[str] = Counter()
    pinned: Counter[str] = Counter()
    for segment in segments:
        free = segment.bytes_in(BlockState.FREE)
        if not free or segment.is_releasable:
            continue
        used = [block for block in segment.blocks if block.state is not BlockState.FREE]
        for block in used:
            blocks[block.frame] += 1
            held[block.frame] += block.size_bytes
        if len({block.frame for block in used}) == 1:
            pinned[used[0].frame] += free
    ordered = sorted(blocks, key=lambda frame: (-pinned[frame], -held[frame], frame))
    return tuple(
        Pin(
            frame=frame,
            num_blocks=blocks[frame],
            held_bytes=held[frame],
            pinned_bytes=pinned[frame],
        )
        for frame in ordered[:MOST_PINS]
    )


def would_serve(
    snapshot: Snapshot, device: int, request_bytes: int, *, device_free_bytes: int | None, stream: int = 0
) -> Fit:
    """Whether the default pool would serve a request of `stream` now, with what the driver has free."""
    wanted = max(round_up(request_bytes, MIN_BLOCK), MIN_BLOCK)
    segments = [item for item in snapshot.segments if item.device == device and item.pool == DEFAULT_POOL]
    small = wanted <= SMALL
    usable = [item for item in segments if item.is_small == small and item.stream == stream]
    if max((run for item in usable for run in free_runs(item.blocks)), default=0) >= wanted:
        return Fit(request_bytes=request_bytes, how="free block")
    if device_free_bytes is None:
        return Fit(request_bytes=request_bytes, how=None)
    needed = segment_bytes(wanted)
    if device_free_bytes >= needed:
        return Fit(request_bytes=request_bytes, how="new segment")
    # Private pools keep what they have as long as their graphs live.
    released = sum(item.size_bytes for item in segments if item.is_releasable)
    if device_free_bytes + released >= needed:
        return Fit(request_bytes=request_bytes, how="after emptying the cache")
    # Expandable segments map free pages wherever they are wanted, so scattered free memory of their own pool counts as one.
    free = sum(item.bytes_in(BlockState.FREE) for item in usable)
    elsewhere = sum(item.size_bytes for item in segments if item.is_releasable and item not in usable)
    missing = wanted - (device_free_bytes + free + elsewhere)
    if missing <= 0:
        return Fit(
            request_bytes=request_bytes,
            how="only with expandable segments",
            missing_bytes=needed - device_free_bytes - released,
        )
    return Fit(request_bytes=request_bytes, how="not at all", missing_bytes=missing)
