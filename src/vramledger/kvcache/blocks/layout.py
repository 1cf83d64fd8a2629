"""The shape of a pool of KV blocks, as the ledger leaves it."""

from __future__ import annotations

from enum import StrEnum
from math import gcd, lcm

from msgspec import Struct


class GroupKind(StrEnum):
    """What decides how many blocks of a group a sequence holds.

    `FULL` keeps every token. `WINDOW` keeps the last `window_tokens`, freeing what lies before. `CHUNK` keeps the
    current chunk of `window_tokens`. `STATE` holds a constant number of blocks a sequence, or, where states are kept at
    block boundaries, that of the last token. `CROSS` keeps the encoder's tokens, all of them from the start.
    """

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"
    CROSS = "cross"


class BlockGroup(Struct, frozen=True, kw_only=True):
    """Layers that share block numbers; each group has a block table of its own, all draw from one pool.

    `block_tokens` is tokens a block of this group. `state_blocks` are those of a STATE group's sequence.
    `keeps_states` is a STATE group whose states at block boundaries can be hit (vLLM's mamba_cache_mode "align"); one without
    never hits anything.
    `admission_blocks` bounds what an admission that reserves a whole prompt counts for a group that gives blocks back on the
    way (vLLM from 0.20.2); None counts the prompt's every block.
    """

    kind: GroupKind = GroupKind.FULL
    block_tokens: int
    window_tokens: int | None = None
    state_blocks: int = 0
    keeps_states: bool = False
    admission_blocks: int | None = None

    @property
    def is_state(self) -> bool:
        return self.kind is GroupKind.STATE

    @property
    def is_constant(self) -> bool:
        """Whether a sequence's blocks are the same ones, and as many, from its first token to its last."""
        return self.kind is GroupKind.CROSS or (self.is_state and not self.keeps_states)


class PoolLayout(Struct, frozen=True, kw_only=True):
    """A pool of `num_blocks` blocks of `block_bytes` on one rank (every rank of an instance holds the same block numbers).

    `reserved_blocks` can never be given out (vLLM's null block). `block_table_entry_bytes` is one entry of a
    sequence's block table on the device. A pool whose groups draw from memory of their own is as many layouts.

    `uncached_first`: a block that comes back without findable content (the part-filled last one) is the next to be given out,
    and only filled ones queue behind (vLLM from 0.24); otherwise all of them queue in the order they came back (up to 0.22).
    `retention_tokens` says which blocks of windows and which states can be found again: None all of them (vLLM up to 0.28),
    0 only those that a prompt sent again or another sequence of the same beginning was seen to need (from 0.29), more
    than 0 those and what lies at every multiple of it. `renews_states`: a sequence that goes on from the last state of its own
    prompt keeps others from starting there in that step (vLLM 0.32 alone; 0.33 mends it). `aligned_commits`: where groups have
    blocks of their own size, none becomes findable that no hit can need (vLLM from 0.23).
    """

    num_blocks: int
    groups: tuple[BlockGroup, ...]
    block_bytes: int = 0
    reserved_blocks: int = 0
    block_table_entry_bytes: int = 4
    uncached_first: bool = True
    retention_tokens: int | None = None
    renews_states: bool = False
    aligned_commits: bool = True

    @property
    def usable_blocks(self) -> int:
        return self.num_blocks - self.reserved_blocks

    @property
    def key_tokens(self) -> int:
        """Tokens of one identity in a sequence's keys: what every group's blocks are whole multiples of."""
        return gcd(*(group.block_tokens for group in self.groups if not group.is_constant)) or 1

    @property
    def hit_tokens(self) -> int:
        """A hit is a whole multiple of this: the least that is whole blocks of every group."""
        return lcm(*(group.block_tokens for group in self.groups if not group.is_constant))

    @property
    def is_plain(self) -> bool:
        """Whether one block table that keeps every token is all there is."""
        return len(self.groups) == 1 and self.groups[0].kind is GroupKind.FULL
