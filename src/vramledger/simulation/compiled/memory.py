"""Everything a compiled run of one replica stands at: one array of 64-bit whole numbers, so that it can stop and go on.

One array because compiled code passes one around for nothing, and counts references to many. It begins with scalars, which also say where the
other parts lie; then come the nodes of the pool and the table that finds them, at places that never change; then what grows with the
requests that are loaded. A request is named by its number in the workload, and its record lies at `row_of(m, number)`; a
node is named by its place. A field of either is so many places behind.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from vramledger.simulation.compiled.jit import compiled

Ints = npt.NDArray[np.int64]


class Memory(Protocol):
    """Such an array, as compiled code sees it."""

    def __getitem__(self, place: int, /) -> int: ...

    def __setitem__(self, place: int, value: int, /) -> None: ...


FOREVER = 2**63 - 2**40
NOBODY = -1

# Scalars: settings.
(
    BLOCK, MAX_SEQS, BUDGET, CHUNKED, CACHING, PRIORITY, THRESHOLD, ALONE_UNBOUNDED, WATERMARK, RESERVE_FULL,
    UNCACHED_FIRST, ID_TOKENS, USABLE, TIME_LIMIT, SAMPLE_LIMIT,
    OVERHEAD_PS, FLOOR_PS, TOKEN_PS, DECODE_SEQ_PS, KV_TOKEN_PS, PAIR_PS,
    # Where the parts lie.
    TABLE_AT, TABLE_MASK, RESIDUES_AT, SAMPLES_AT, FINISHES_AT, FILLS_AT, HEAP_ROWS, TIMERS_AT, SENDS_AT, RANKS_AT,
    PREFILLS_AT, FOUND_AT, ARENA_AT, ARENA_SIZE, IDS_AT, REQUESTS_AT,
    # Where the run stands.
    BASE, NEXT_NUMBER, LOADED, NOW, STEP, SEQUENCE,
    FREE, CACHED, EXTRA_REFS, SPARE_NODE, NODE_TOP, ARENA_TOP,
    RUNNING, RUN_FIRST, RUN_LAST, WAITING, WAIT_FIRST, WAIT_LAST,
    DECODING, DECODED_TOKENS, PREFILLING, IS_BLOCKED,
    FINISHES, FILLS, TIMERS, SENDS, RANKS,
    SAMPLE_SPACING, SAMPLES, SAMPLED_WAITING, END_PS, SENT_COUNT, HAS_TIMERS, ENDED_COUNT,
    HIT_TOKENS, LOOKED_UP_TOKENS, EVICTED_BLOCKS, PREEMPTIONS, RECOMPUTED_TOKENS, STEPS, COMPUTED_TOKENS,
    PLAN_TOKENS, PLAN_DECODES, PLAN_KV, PLAN_PAIRS, PLAN_PREEMPTED, LAST_DECODE_TURN,
    LOST_TOKENS, REPEATED_TOKENS, IS_WALKED,
    # Asynchronous scheduling.
    LAG, IN_FLIGHT, BEGUN, ENDINGS, ENDINGS_AT,
    # One of several replicas: those that are stuck wait for the others' ends.
    IS_OF_MANY,
    # Engines that keep one list of all requests.
    SCHEDULING, LIST_FIRST, LIST_LAST, RESERVED, CHOSEN_AT, AWAITED_AT, HAS_MIXED,
    # SGLang. RATIO are four floats: the share now, at first, at least, and what a step takes off.
    PARTIAL, IS_PREFILL, MAX_PREFILL, CLIP, RATIO,
    RATIO_AT_FIRST, RATIO_AT_LEAST, RATIO_DECAY,
    # vLLM by priority.
    GOES_ON,
) = range(109)  # fmt: skip
SCALARS = 109
VLLM, TO_THE_END, MOST_UTILIZATION, STATIC_BATCH, SGLANG = range(5)
"""SCHEDULING: whose rules."""

# A request's record: what it is.
(
    SENT, PROMPT, OUTPUT, IDS_FROM, IDS, TAG, CANCEL, FIRST_DEADLINE, DEADLINE, RANK, PARENT, PAUSE,
    CHILD, SIBLING, FITS, OWN_NUMBER,
    # What became of it.
    STATUS, ADMITTED, FIRST_TOKEN, END, HIT, RECOMPUTED, PREEMPTED,
    # Where it stands. COMPUTED is, while it decodes, its computed tokens less the decode steps done (STEP), so that it stays as it is.
    PHASE, COMPUTED, KNOWN, HIGH, PREVIOUS, NEXT, TURN, SHARE, IDENTIFIED, KEYS, NAMED, NODES_FROM, RUN_NODE, IS_OVERRUN, BEGAN,
    EXPECTED, EARLIER, LATER_ONE, COMMITTED,
) = range(42)  # fmt: skip
COLUMNS = 42
UNSENT, QUEUED, PREFILL, DECODE, OVER, ENDING = range(6)
"""ENDING has all its tokens, but the next step is planned before that is known."""

# A node of the free queue, or of a held block that has a name. One without a name stands for COUNT blocks in a row.
AHEAD, BEHIND, COUNT, KIND, ID, PLACE, REFS, LATER = range(8)
"""AHEAD is nearer to the queue's front. PLACE tells blocks of one identity apart, and boundaries. LATER has the same content."""
NODE_COLUMNS = 8
EMPTY, FILLED, NAMED_BLOCK = range(3)
ENDS = SCALARS
"""The node that is both ends of the queue."""
NONE = 0
"""Where a node is sought, none."""

# A sample.
AT, USED, FINDABLE, UNUSED, RUNNING_NOW, WAITING_NOW, LOGICAL, PHYSICAL = range(8)
SAMPLE_COLUMNS = 8

# What `advance` stopped for.
NEEDS_MORE, ENDED, UNDECIDED, CUT_SHORT = range(4)


@compiled
def row_of(m: Memory, number: int) -> int:
    """Where the record of a request lies, which must be loaded."""
    return m[REQUESTS_AT] + (number - m[BASE]) * COLUMNS
