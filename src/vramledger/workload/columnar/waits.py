"""The waits of a workload, with the context that each one leaves idle."""

from __future__ import annotations

import numpy as np

from vramledger.workload.columns import Workload, joined
from vramledger.workload.wait import Wait


def waits_of(workload: Workload) -> tuple[Wait, ...]:
    """A wait for each request that follows another and begins with something of it, in order of the requests.

    The context is what a block index could find again: the common leading blocks, no more than the first one computed (its last
    output token's KV never is), and less than the second one's prompt, of which a token must be computed to sample from. Empty where the
    workload names no blocks.
    """
    block_tokens = workload.header.block_tokens
    table = joined(workload.batches())
    if block_tokens is None or not table.rows:
        return ()
    offsets = table.block_offsets.tolist()
    waits = []
    for number in np.flatnonzero(table.parent >= 0).tolist():
        parent = int(table.parent[number])
        if table.boundary[parent] != table.boundary[number]:
            continue
        before = table.block_ids[offsets[parent] : offsets[parent + 1]]
        after = table.block_ids[offsets[number] : offsets[number + 1]]
        both = min(len(before), len(after))
        differ = np.flatnonzero(before[:both] != after[:both])
        same = int(differ[0]) if len(differ) else both
        computed = int(table.prompt_tokens[parent]) + max(1, int(table.output_tokens[parent])) - 1
        context = min(same * block_tokens, computed, int(table.prompt_tokens[number]) - 1)
        if context > 0:
            waits.append(Wait(number, context, int(table.pause_ns[number])))
    return tuple(waits)
