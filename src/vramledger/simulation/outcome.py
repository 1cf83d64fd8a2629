"""What became of each request, and of the pool."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class Status(IntEnum):
    """How a request ended. Numbers are those of the Parquet files."""

    FINISHED = 0
    CANCELLED = 1
    NEVER_FITS = 2
    """Its prompt, or its prompt and output, exceed the model's length or the whole pool."""
    EXPIRED = 3
    """Its deadline passed before it was done."""
    LIVELOCKED = 4
    """The pool cannot serve it: the same requests would evict each other for ever."""
    UNFINISHED = 5
    """The run's time ended first."""
    REJECTED = 6
    """An admission policy would not have it."""
    FAILED = 7
    """The engine ended it with an error, for want of room (llama.cpp's server)."""


class RequestOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """Request `number` of the workload. Times are picoseconds since the workload's start; -1 is never.

    `sent_ps` is the arrival (for a later turn: the parent's end and the pause). `hit_tokens` are prompt tokens found in the
    cache at first admission; `recomputed_tokens` those computed again after preemptions.
    """

    number: int
    replica: int
    status: Status
    sent_ps: int
    admitted_ps: int = -1
    first_token_ps: int = -1
    end_ps: int = -1
    prompt_tokens: int
    output_tokens: int
    hit_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0


class PoolCounters(Struct, frozen=True, kw_only=True):
    """Sums over a run and a pool, in tokens unless the name says otherwise.

    `kept_token_ps` is tokens times picoseconds held for later turns while nobody ran on them, `host_link_bytes` what went to the host
    and back for them.
    """

    hit_tokens: int = 0
    looked_up_tokens: int = 0
    copied_blocks: int = 0
    evicted_blocks: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    swapped_out_tokens: int = 0
    swapped_in_tokens: int = 0
    steps: int = 0
    computed_tokens: int = 0
    kept_token_ps: int = 0
    host_link_bytes: int = 0


class PoolSample(Struct, frozen=True, kw_only=True, gc=False):
    """The pool at one instant: taken at equal spaces of simulated time.

    A usable block is used (held by a sequence), cached (held by none, but its content can be found) or free. `logical_tokens` counts
    a shared token once for each sequence that holds it, `physical_tokens` once in all; several groups that keep it count as one.
    """

    at_ps: int
    replica: int
    used_blocks: int
    cached_blocks: int
    free_blocks: int
    running: int
    waiting: int
    logical_tokens: int
    physical_tokens: int


class Run(Struct, frozen=True, kw_only=True):
    """What a run leaves besides its requests' outcomes: one entry of `counters` a replica, samples in order of time."""

    counters: tuple[PoolCounters, ...]
    samples: tuple[PoolSample, ...]
    end_ps: int
    is_compiled: bool = False
    notes: tuple[str, ...] = ()
