"""What a scheduler is to the simulation.

A replica calls, for ever: `step` at a time, then (after the step's duration) `after_step` with what was scheduled. With
`lag_steps` 1 the next `step` comes before the last one's `after_step`, as engines do that plan a step while the one before
it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.sequence import Sequence


class Scheduled(NamedTuple):
    """A sequence's share of a step: `tokens` computed after `computed_before`; `yields` when it samples a token then."""

    sequence: Sequence
    tokens: int
    computed_before: int
    yields: bool


class StepPlan:
    """What one scheduling decided. `scheduled` is in order: running sequences first, then those admitted.

    `admitted` came from the queue (new or preempted before), `preempted` went back to it, and `failed` the engine ended with an
    error for want of room. `extra_ps` is time that the step takes besides
    its computation (blocks moved to the host and back).
    """

    __slots__ = ("admitted", "extra_ps", "failed", "preempted", "scheduled")

    def __init__(self) -> None:
        self.scheduled: list[Scheduled] = []
        self.admitted: list[Sequence] = []
        self.preempted: list[Sequence] = []
        self.failed: list[Sequence] = []
        self.extra_ps = 0


class Work(NamedTuple):
    """A step's work in the terms of `StepModel`."""

    tokens: int
    decode_seqs: int
    kv_tokens: int
    pairs: int


def work_of(scheduled: Iterable[Scheduled]) -> Work:
    """The work of a step. A share of one token decodes, whatever it is part of: attention kernels tell them by length."""
    tokens = decode_seqs = kv_tokens = pairs = 0
    for share in scheduled:
        tokens += share.tokens
        kv_tokens += share.computed_before
        if share.tokens == 1:
            decode_seqs += 1
        else:
            pairs += share.tokens * (share.computed_before + share.tokens // 2)
    return Work(tokens, decode_seqs, kv_tokens, pairs)


class Scheduler(Protocol):
    """An engine's rules over one pool. Pure: the caller passes the time."""

    pool: BlockPool
    lag_steps: int

    @property
    def running(self) -> Iterable[Sequence]:
        """Sequences that hold blocks and are served, in the engine's order."""

    @property
    def waiting(self) -> Iterable[Sequence]:
        """Sequences in the queue, the next one first."""

    @property
    def idle_blocks(self) -> int:
        """Blocks that are held for no sequence and given up wherever room is short."""

    @property
    def running_count(self) -> int: ...

    @property
    def waiting_count(self) -> int: ...

    def submit(self, sequence: Sequence) -> None:
        """A new sequence joins the queue."""

    def step(self, now_ps: int) -> StepPlan:
        """Decides and allocates the next step. `computed_tokens` of what is scheduled grow at once."""

    def after_step(self, plan: StepPlan) -> list[Sequence]:
        """A step is computed: output tokens arrive, and sequences with all of theirs end and give their blocks back. Returns those."""

    def abort(self, sequence: Sequence) -> None:
        """A sequence leaves, from wherever it is; its blocks come back at once."""
