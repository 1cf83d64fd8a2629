"""How much of a sequence's beginning a pool has: the hit on which all groups agree (vLLM: kv_cache_coordinator.py)."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.kvcache.blocks.group_rules import hit_places, keys_of, longest_hit
from vramledger.kvcache.blocks.layout import GroupKind, PoolLayout
from vramledger.kvcache.blocks.prefix_index import PrefixIndex


class PrefixLookup:
    """Looks in the index, and changes nothing.

    `groups` are those that a hit has to satisfy, with their numbers; full attention first, whose one scan bounds the others.
    """

    def __init__(self, layout: PoolLayout, index: PrefixIndex) -> None:
        self.layout = layout
        self._key_tokens, self._hit_tokens = layout.key_tokens, layout.hit_tokens
        self.groups = sorted(
            ((number, group) for number, group in enumerate(layout.groups) if not group.is_constant),
            key=lambda entry: entry[1].kind is not GroupKind.FULL,
        )
        # A state that cannot be found again forbids every hit, and so do an encoder's blocks.
        self.is_findable = len(self.groups) == len(layout.groups)
        self._index = index

    def shared_prefix(self, keys: Sequence[int], boundary: int, limit_tokens: int) -> tuple[int, int]:
        """The tokens of the hit, and of the longest one of any single group."""
        hit, longest = min(limit_tokens, len(keys) * self._key_tokens), 0
        if not self.is_findable or hit <= 0:
            return 0, 0
        while hit > 0:
            agreed = hit
            for number, group in self.groups:
                named = keys_of(group, keys, self._key_tokens)
                agreed = longest_hit(
                    group, agreed, self._hit_tokens, named, self._index.shelf(number, boundary)
                )
                longest = max(longest, agreed)
            if agreed == hit:
                break
            hit = agreed
        return hit, longest

    def blocks(self, keys: Sequence[int], boundary: int, hit_tokens: int) -> list[list[int]]:
        """The blocks of a hit, a list a group. Raises ValueError where they are not all there."""
        hits: list[list[int]] = []
        for number, group in enumerate(self.layout.groups):
            stride = group.block_tokens // self._key_tokens
            blocks = []
            for place in hit_places(group, hit_tokens):
                block = self._index.find(number, boundary, keys[(place + 1) * stride - 1])
                if block is None:
                    raise ValueError(
                        f"{hit_tokens} tokens are no hit: block {place} of group {number} is gone"
                    )
                blocks.append(block)
            hits.append(blocks)
        return hits
