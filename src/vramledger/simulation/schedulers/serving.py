"""What schedulers of different engines do alike: a sequence's share of a step, and what a computed step brings."""

from __future__ import annotations

from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.protocol import Scheduled, StepPlan
from vramledger.simulation.schedulers.sequence import Sequence


def scheduled(sequence: Sequence, tokens: int, *, lags: bool) -> Scheduled:
    """The next `tokens` of a sequence, counted as computed from now on. `lags`: the step before is not evaluated yet."""
    before = sequence.computed_tokens
    after = before + tokens
    yields = after >= sequence.known_tokens + sequence.placeholders
    sequence.computed_tokens = after
    sequence.in_flight_tokens += tokens
    if yields and lags:
        sequence.placeholders += 1
    return Scheduled(sequence, tokens, before, yields)


def admitted(sequence: Sequence, ready_tokens: int, hit_tokens: int) -> None:
    """A sequence leaves the queue with `ready_tokens` computed, `hit_tokens` of them from the cache."""
    sequence.is_running = True
    sequence.computed_tokens = ready_tokens
    if not sequence.preemptions:
        sequence.hit_tokens = hit_tokens


def preempted(sequence: Sequence) -> None:
    """A sequence loses its KV. What a step in flight brings it is thrown away."""
    sequence.is_running = False
    sequence.computed_tokens = 0
    sequence.stale_tokens = sequence.in_flight_tokens
    sequence.placeholders = 0
    sequence.preemptions += 1


def ends_in_flight(sequence: Sequence) -> bool:
    """Whether the step in flight brings the last token that the engine expects of it at most."""
    return sequence.generated_tokens + sequence.placeholders >= sequence.max_output_tokens


def settled(plan: StepPlan) -> list[Sequence]:
    """Output tokens of a computed step arrive; returns the sequences that have all of theirs, still holding their blocks."""
    ended = []
    for sequence, tokens, _, yields in plan.scheduled:
        sequence.in_flight_tokens -= tokens
        if sequence.stale_tokens > 0:
            sequence.stale_tokens -= tokens
            continue
        if sequence.is_done or not yields:
            continue
        sequence.generated_tokens += 1
        sequence.placeholders = max(0, sequence.placeholders - 1)
        if sequence.generated_tokens == sequence.output_tokens:
            ended.append(sequence)
    return ended


def cached_tokens(pool: BlockPool, sequence: Sequence) -> int:
    """Tokens of a waiting sequence that the cache holds: never all of it, for without one computed there is nothing to sample from."""
    return pool.hit_tokens(sequence.keys, boundary=sequence.boundary, limit_tokens=sequence.known_tokens - 1)


def unheld_hit_blocks(pool: BlockPool, sequence: Sequence, hit_tokens: int) -> int:
    """Blocks of a hit that nobody holds: free for others until the sequence takes them."""
    if not hit_tokens:
        return 0
    return pool.needed_blocks(
        sequence.identity, hit_tokens, keys=sequence.keys, boundary=sequence.boundary, hit_tokens=hit_tokens
    )
