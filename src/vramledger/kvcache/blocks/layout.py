"""The shape of a pool of KV blocks, as the ledger leaves it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class GroupKind(StrEnum):
    """What decides how many blocks of a group a sequence holds.

    `FULL` keeps every token. `WINDOW` keeps the last `window_tokens`, freeing what lies before. `CHUNK` keeps the
    current chunk of `window_tokens`. `STATE` holds a constant number of blocks a sequence. `CROSS` keeps the encoder's
    tokens, all of them from the start.
    """

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"
    CROSS = "cross"


class BlockGroup(Struct, frozen=True, kw_only=True):
    """Layers that share block numbers; each group has a block table of its own, all draw from one pool.

    `block_tokens` is tokens a block of this group. `state_blocks` are those of a STATE group's sequence.
    """

    kind: GroupKind = GroupKind.FULL
    block_tokens: int
    window_tokens: int | None = None
    state_blocks: int = 0


class PoolLayout(Struct, frozen=True, kw_only=True):
    """A pool of `num_blocks` blocks of `block_bytes` on one rank (every rank of an instance holds the same block numbers).

    `reserved_blocks` can never be given out (vLLM's null block). `block_table_entry_bytes` is one entry of a
    sequence's block table on the device. A pool whose groups draw from memory of their own is as many layouts.
    """

    num_blocks: int
    groups: tuple[BlockGroup, ...]
    block_bytes: int = 0
    reserved_blocks: int = 0
    block_table_entry_bytes: int = 4

    @property
    def usable_blocks(self) -> int:
        return self.num_blocks - self.reserved_blocks

    @property
    def is_plain(self) -> bool:
        """Whether one block table that keeps every token is all there is."""
        return len(self.groups) == 1 and self.groups[0].kind is GroupKind.FULL
