"""What a pool counts of its own doings since it was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BlockCounters:
    """Sums, in tokens or blocks as the names say; a token kept in several groups counts once a group where blocks are counted."""

    hit_tokens: int = 0
    looked_up_tokens: int = 0
    taken_blocks: int = 0
    evicted_blocks: int = 0
    evicted_tokens: int = 0
    copied_blocks: int = 0
    copied_tokens: int = 0
    swapped_out_tokens: int = 0
    swapped_in_tokens: int = 0
