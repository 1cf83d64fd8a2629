"""An allocator snapshot as values: segments, their blocks, and the failures its history holds.

Source of the layout: torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/memory.py (`_snapshot`), PyTorch 1.11 to 2.13.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

DEFAULT_POOL = (0, 0)


class BlockState(StrEnum):
    """What a block is to the allocator. Pending: freed by its owner, still used by another stream."""

    ALLOCATED = "allocated"
    PENDING = "pending"
    FREE = "free"


class Block(Struct, frozen=True):
    """`requested_bytes` is what was asked for, the size where a file does not tell. `frame` is the innermost frame of its
    allocation outside PyTorch's own files, "" where none was recorded."""

    address: int
    size_bytes: int
    requested_bytes: int
    state: BlockState
    frame: str = ""


class Segment(Struct, frozen=True, kw_only=True):
    """One range that the allocator took from the driver. `pool` is (0, 0) for the default pool; others are private
    (graph capture, pools of users), whose free blocks serve nobody else. `is_small` segments serve requests of up to 1 MiB."""

    device: int
    address: int
    size_bytes: int
    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool
    blocks: tuple[Block, ...]

    def bytes_in(self, state: BlockState) -> int:
        return sum(block.size_bytes for block in self.blocks if block.state is state)

    @property
    def is_releasable(self) -> bool:
        """Whether emptying the cache gives the segment back: nothing in it is used or pending."""
        return all(block.state is BlockState.FREE for block in self.blocks)


class FailedRequest(Struct, frozen=True, kw_only=True):
    """An `oom` of the recorded history."""

    device: int
    size_bytes: int
    device_free_bytes: int | None
    at_us: int | None
    frame: str


class Snapshot(Struct, frozen=True, kw_only=True):
    """One file. `settings` are the allocator's own; `history_events` counts the recorded events by action."""

    segments: tuple[Segment, ...]
    failures: tuple[FailedRequest, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    history_events: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(
            sorted({segment.device for segment in self.segments} | {item.device for item in self.failures})
        )
