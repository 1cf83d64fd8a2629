"""Blocks of a turn named as the next turn names them.

A trace names the blocks of prompts. An engine also caches the blocks that a request's output fills, and the next turn of
a conversation, whose prompt begins with this prompt and this output, hits them. So a turn's identities are carried on
with those of the turn that continues it, as far as this turn's prompt and output reach, and a last block that the
prompt fills only in part gets the name that it has in the next turn: both hold the same tokens as far as they go. That
is done only where the later turn's prompt is no shorter and repeats all full blocks of this one (at least one), so
that a compacted or unrelated prompt changes nothing.

What is lost: a partly filled last block that several requests share by one name is no longer shared beyond full blocks
where their next turns differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from vramledger.workload.columns import Ints, RequestColumns

LOOK_AHEAD = 8
"""Turns of a conversation that are looked at for the one that continues a turn."""


def continued(
    columns: RequestColumns, block_tokens: int, later: Callable[[int], Sequence[int]]
) -> tuple[RequestColumns, int]:
    """The same requests with blocks as above, and how many turns were carried on.

    `later(place)` are the places, all greater, of requests that may continue the one at `place`, nearest first.
    """
    offsets = columns.block_offsets.tolist()
    prompts, outputs = columns.prompt_tokens.tolist(), columns.output_tokens.tolist()
    boundaries = columns.boundary.tolist()
    named = [columns.block_ids[start:stop] for start, stop in pairwise(offsets)]
    carried = 0
    for place in range(columns.rows - 1, -1, -1):
        own = named[place]
        full = min(prompts[place] // block_tokens, len(own))
        reach = -(-(prompts[place] + outputs[place]) // block_tokens)
        if not full or reach <= full:
            continue
        for other in later(place):
            following = named[other]
            if (
                len(following) > full
                and prompts[other] >= prompts[place]
                and boundaries[other] == boundaries[place]
                and following[full - 1] == own[full - 1]
                and np.array_equal(following[:full], own[:full])
            ):
                named[place] = following[:reach]
                carried += 1
                break
    lengths = np.fromiter(map(len, named), dtype=np.int64, count=len(named))
    out = np.zeros(len(named) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out[1:])
    ids = np.concatenate(named) if named else np.empty(0, dtype=np.int64)
    return columns._replace(block_offsets=out, block_ids=ids), carried


def later_in_groups(groups: Ints) -> Callable[[int], Sequence[int]]:
    """`later` for requests in order whose conversation is `groups` (-1: none)."""
    order = np.argsort(groups, kind="stable")
    ends = np.flatnonzero(np.diff(groups[order])) + 1
    last_of = np.zeros(len(order), dtype=np.int64)
    starts = [0, *ends.tolist()]
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        last_of[start:stop] = stop
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ranks, stops, kinds = rank.tolist(), last_of.tolist(), groups.tolist()
    places: list[int] = order.tolist()

    def later(place: int) -> Sequence[int]:
        if kinds[place] < 0:
            return ()
        after = ranks[place] + 1
        return places[after : min(after + LOOK_AHEAD, stops[after - 1])]

    return later


def later_children(parents: Ints) -> Callable[[int], Sequence[int]]:
    """`later` for requests whose parents are known by place (-1: none)."""
    children: dict[int, list[int]] = {}
    for place, parent in enumerate(parents.tolist()):
        if parent >= 0:
            children.setdefault(parent, []).append(place)
    return lambda place: children.get(place, ())[:LOOK_AHEAD]
