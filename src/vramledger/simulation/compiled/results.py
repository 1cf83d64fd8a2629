"""What a run leaves in memory besides outcomes, as records."""

from __future__ import annotations

from vramledger.simulation.compiled import memory as at
from vramledger.simulation.compiled.memory import Ints
from vramledger.simulation.outcome import PoolCounters, PoolSample


def counters_of(m: Ints) -> PoolCounters:
    """A run's sums so far."""
    return PoolCounters(
        hit_tokens=int(m[at.HIT_TOKENS]),
        looked_up_tokens=int(m[at.LOOKED_UP_TOKENS]),
        evicted_blocks=int(m[at.EVICTED_BLOCKS]),
        preemptions=int(m[at.PREEMPTIONS]),
        recomputed_tokens=int(m[at.RECOMPUTED_TOKENS]),
        steps=int(m[at.STEPS]),
        computed_tokens=int(m[at.COMPUTED_TOKENS]),
    )


def samples_of(m: Ints, replica: int) -> tuple[PoolSample, ...]:
    """The pool over time."""
    start, count = int(m[at.SAMPLES_AT]), int(m[at.SAMPLES])
    rows = m[start : start + count * at.SAMPLE_COLUMNS].reshape(count, at.SAMPLE_COLUMNS).tolist()
    return tuple(
        PoolSample(
            at_ps=row[at.AT],
            replica=replica,
            used_blocks=row[at.USED],
            cached_blocks=row[at.FINDABLE],
            free_blocks=row[at.UNUSED],
            running=row[at.RUNNING_NOW],
            waiting=row[at.WAITING_NOW],
            logical_tokens=row[at.LOGICAL],
            physical_tokens=row[at.PHYSICAL],
        )
        for row in rows
    )
