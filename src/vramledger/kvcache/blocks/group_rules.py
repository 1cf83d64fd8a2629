"""What each kind of group keeps, needs, makes findable and can hit (vLLM: single_type_kv_cache_manager.py)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import islice

from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind
from vramledger.units import ceil_div


def skipped_tokens(group: BlockGroup, computed_tokens: int) -> int:
    """Leading tokens that the token after `computed_tokens` and all later ones do not look at (get_num_skipped_tokens)."""
    window = group.window_tokens or 0
    if group.kind is GroupKind.WINDOW:
        return max(0, computed_tokens - window + 1)
    if group.kind is GroupKind.CHUNK:
        return computed_tokens // window * window
    if group.keeps_states:
        return max(0, computed_tokens - 1)
    return 0


def skipped_blocks(group: BlockGroup, computed_tokens: int) -> int:
    return skipped_tokens(group, computed_tokens) // group.block_tokens


def covering_blocks(group: BlockGroup, tokens: int, encoder_tokens: int) -> int:
    """Places in the group's block table for a sequence of `tokens`, given back ones included."""
    if group.kind is GroupKind.CROSS:
        return ceil_div(encoder_tokens, group.block_tokens)
    if group.kind is GroupKind.STATE and not group.keeps_states:
        return group.state_blocks
    return ceil_div(tokens, group.block_tokens)


def new_blocks(group: BlockGroup, places: int, required: int) -> int:
    """Blocks to take for a table to go from `places` to `required` places: of states only the last one is ever needed."""
    missing = max(required - places, 0)
    return min(missing, 1) if group.keeps_states else missing


def longest_hit(
    group: BlockGroup, limit_tokens: int, align_tokens: int, keys: Sequence[int], found: Container[int]
) -> int:
    """Tokens of the longest hit of one group, a multiple of `align_tokens` and at most `limit_tokens`.

    `keys` name the group's blocks, `found` are those whose content the pool has. Full attention needs every block from the
    first on; a window the blocks that the next token still looks at; a state the one at that very boundary; a chunk
    those of the chunk in which `limit_tokens` lies (find_longest_cache_hit of each manager).
    """
    if group.kind is GroupKind.WINDOW or group.keeps_states:
        return _hit_of_the_end(group, limit_tokens, align_tokens, keys, found)
    size = group.block_tokens
    end = skipped_blocks(group, limit_tokens)
    for key in islice(keys, end, limit_tokens // size):
        if key not in found:
            break
        end += 1
    return end * size // align_tokens * align_tokens


def _hit_of_the_end(
    group: BlockGroup, limit_tokens: int, align_tokens: int, keys: Sequence[int], found: Container[int]
) -> int:
    size = group.block_tokens
    hit = limit_tokens // align_tokens * align_tokens
    while hit > 0:
        place = hit // size - 1
        first = skipped_blocks(group, hit)
        while place >= first and keys[place] in found:
            place -= 1
        if place < first:
            return hit
        # Every hit that ends beyond the missing block, up to this one, looks at it too.
        hit = place * size // align_tokens * align_tokens
    return 0


def hit_places(group: BlockGroup, hit_tokens: int) -> range:
    """The places of the blocks that a hit of `hit_tokens` takes; those before them are skipped."""
    if group.is_constant:
        return range(0)
    end = hit_tokens // group.block_tokens
    return range(min(skipped_blocks(group, hit_tokens), end), end)


def retained_places(
    group: BlockGroup,
    places: range,
    *,
    align_tokens: int,
    retention_tokens: int | None,
    reachable: Sequence[int],
) -> Iterator[int]:
    """Those of `places` whose blocks some hit may ever take (reachable_block_mask).

    A hit ends at a multiple of `align_tokens`; with `retention_tokens` only at a multiple of that, and at the
    `reachable` numbers of tokens.
    """
    if group.kind is not GroupKind.WINDOW and not group.keeps_states:
        yield from places
        return
    size = group.block_tokens
    needed = 1 if group.keeps_states else ceil_div(max((group.window_tokens or 1) - 1, 0), size)
    segment = align_tokens if retention_tokens is None else retention_tokens
    per_segment = segment // size
    ends = (
        []
        if retention_tokens is None
        else [tokens // align_tokens * align_tokens // size for tokens in reachable]
    )
    for place in places:
        in_segment = per_segment > 0 and place % per_segment >= per_segment - needed
        if in_segment or any(end - needed <= place < end for end in ends):
            yield place


def keys_of(group: BlockGroup, keys: Sequence[int], key_tokens: int) -> Sequence[int]:
    """The identities of a group's blocks: each is named after its last part."""
    stride = group.block_tokens // key_tokens
    return keys if stride <= 1 else keys[stride - 1 :: stride]
