"""What would help, and by how many bytes or tokens: changes tried on the ledger where the model is known, else sized from what
the log and the message state."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.answer import Plan
from vramledger.diagnosis.arithmetic import Arithmetic
from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.moment import Moment
from vramledger.diagnosis.remedies_pool import fewer_requests, leak, narrow_kv, shorter_context
from vramledger.diagnosis.remedies_process import (
    host_memory,
    more_ranks,
    more_slots,
    not_memory,
    other_holders,
    wait_for_holder,
)
from vramledger.diagnosis.remedies_share import (
    feasible_share,
    larger_pool,
    less_share,
    more_share,
    startup_share,
)
from vramledger.diagnosis.remedies_step import expandable_segments, fewer_sequences, no_graphs, smaller_steps
from vramledger.diagnosis.remedy import Case, Planner, Remedy
from vramledger.diagnosis.rules_arithmetic import slack_covers
from vramledger.diagnosis.terms import FailureClass, Stage

MOST = 3


def remedies(
    facts: Facts,
    moment: Moment,
    sums: Arithmetic,
    failure_class: FailureClass | None,
    planner: Planner | None = None,
    base: Plan | None = None,
) -> tuple[Remedy, ...]:
    """At most three, the one that costs least of those that are large enough first. `base` is the failing instance's plan, what
    `planner` gives without changes."""
    case = Case(
        facts=facts,
        moment=moment,
        sums=sums,
        failure_class=failure_class,
        planner=planner,
        base=base,
    )
    found: dict[str, Remedy] = {}
    for item in _candidates(case):
        found.setdefault(item.change, item)
    missing = case.missing_bytes or 0
    ranked = sorted(
        enumerate(found.values()),
        key=lambda pair: (
            pair[1].frees_bytes is not None and pair[1].frees_bytes < missing,
            pair[0],
        ),
    )
    return tuple(item for _, item in ranked[:MOST])


def _candidates(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    if facts.standing is Standing.BENIGN:
        return
    if facts.domain is Domain.REQUEST_SLOTS:
        yield from more_slots(case)
        return
    if facts.domain in (Domain.SHARED_MEMORY_PER_BLOCK, Domain.NONE, Domain.SHARED_SEGMENT):
        yield from not_memory(case)
        return
    if facts.domain is Domain.HOST:
        yield from host_memory(case)
        return
    if facts.domain is Domain.KV_POOL:
        yield from _pool(case)
        return
    if slack_covers(facts) and facts.domain is Domain.DEVICE:
        yield from expandable_segments(case)
    match case.failure_class:
        case FailureClass.LOAD_TIME:
            yield from other_holders(case)
            yield from startup_share(case)
            yield from feasible_share(case)
            if facts.stage is not Stage.STARTUP_CHECK:
                yield from _static_set(case)
        case FailureClass.WARM_UP:
            yield from fewer_sequences(case)
            yield from smaller_steps(case)
            yield from less_share(case)
            yield from no_graphs(case)
        case FailureClass.PREFILL_SPIKE:
            yield from smaller_steps(case)
            yield from less_share(case)
            yield from expandable_segments(case)
        case FailureClass.DECODE_GROWTH:
            yield from fewer_requests(case)
            yield from narrow_kv(case)
            yield from leak(case)
        case FailureClass.FRAGMENTATION:
            yield from expandable_segments(case)
            yield from less_share(case)
            yield from smaller_steps(case)
        case FailureClass.RECOVERY:
            yield from other_holders(case)
            yield from wait_for_holder(case)
        case _:
            yield from less_share(case)


# Nothing is left for KV at all: narrower KV needs less of nothing.
_NO_POOL = frozenset({"vllm-kv-none", "sglang-static-share"})


def _static_set(case: Case) -> Iterator[Remedy]:
    """Of a static set that does not fit: KV only where KV was asked for."""
    if case.facts.stage in (Stage.KV_SIZING, Stage.KV_ALLOC, None):
        yield from shorter_context(case)
        if case.facts.kind not in _NO_POOL:
            yield from narrow_kv(case)
        yield from more_share(case)
    yield from more_ranks(case)


def _pool(case: Case) -> Iterator[Remedy]:
    """Of a pool that ran full: fewer requests at once, narrower KV, a larger pool; of broken books a restart."""
    if case.failure_class is FailureClass.RECOVERY:
        yield from wait_for_holder(case)
    yield from fewer_requests(case)
    yield from narrow_kv(case)
    yield from larger_pool(case)
    if case.facts.pool_loss_tokens:
        yield from leak(case)
