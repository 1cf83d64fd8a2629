"""Cohorts made into a workload: as many requests as wanted, in order, a window of time after the other.

The same cohorts and seed give the same requests, however many are taken and however they are looked at: each cohort and each stream
of arrivals has a generator of its own, seeded by the caller's seed and its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from vramledger.errors import InputError
from vramledger.workload.cohort import Cohort, check_cohorts
from vramledger.workload.columnar.arrivals import Arrivals, Renewal, TraceTimes
from vramledger.workload.columnar.cohort_requests import (
    DECODE_TOKENS_PER_S,
    PREFILL_TOKENS_PER_S,
    CohortRequests,
    ids_per_text,
)
from vramledger.workload.columnar.merging import NS, batches_of, generator, merged_rows
from vramledger.workload.columnar.sessions import Sessions
from vramledger.workload.columnar.streams import AgentUsers, ClosedStream, OpenStream, Stream
from vramledger.workload.columns import RequestColumns, Workload
from vramledger.workload.request import WorkloadHeader

Ints = npt.NDArray[np.int64]
BLOCK_TOKENS = 16
_WINDOW_REQUESTS = 32_768
_SESSION_IDS = 2**37
MOST_REQUESTS = 10**9
_Source = Callable[[int], CohortRequests | Sessions]


def sample_workload(
    cohorts: Sequence[Cohort],
    *,
    requests: int | None = None,
    duration_s: float | None = None,
    arrivals: Workload | None = None,
    seed: int = 0,
    stratified: bool = False,
    block_tokens: int = BLOCK_TOKENS,
    window_requests: int = _WINDOW_REQUESTS,
) -> Workload:
    """A workload of so many requests or of so much time, whichever ends first.

    With `arrivals` requests come at the times of that trace, and the cohorts take turns by their rates (or weights); it ends
    with the trace. `stratified` draws lengths from equal strata, 1,024 requests of a cohort at a time, so that quantiles are met and not
    only approached; independent draws are what a confidence interval needs. `window_requests` is how many are made at once, and changes
    nothing.

    Raises InputError where no cohort says when its requests come, or nothing says where to stop.
    """
    if arrivals is None:
        check_cohorts(cohorts)
    if requests is None and duration_s is None and arrivals is None:
        raise InputError("say how many requests to sample, or how many seconds")
    if requests is not None and not 0 < requests <= MOST_REQUESTS:
        raise InputError(f"{requests} requests are not from 1 to {MOST_REQUESTS:,}", value=requests)
    if duration_s is not None and not 0 < duration_s <= 10**9:
        raise InputError(f"{duration_s:g} seconds are not more than 0 and at most 10^9", value=duration_s)
    tenants = tuple(dict.fromkeys(cohort.tenant for cohort in cohorts))
    boundaries = tuple(dict.fromkeys(cohort.forbids_sharing for cohort in cohorts))
    first_ids = _first_ids(cohorts, block_tokens)
    end_ns = None if duration_s is None else round(duration_s * NS)

    def source(number: int) -> CohortRequests | Sessions:
        cohort = cohorts[number]
        tenant, boundary = tenants.index(cohort.tenant), boundaries.index(cohort.forbids_sharing)
        first_id, own_seed = first_ids[number], np.random.SeedSequence((seed, 0, number))
        if cohort.agent is not None:
            return Sessions(
                cohort,
                tenant=tenant,
                boundary=boundary,
                first_id=first_id,
                block_tokens=block_tokens,
                seed=own_seed,
            )
        return CohortRequests(
            cohort,
            tenant=tenant,
            boundary=boundary,
            first_id=first_id,
            block_tokens=block_tokens,
            stratified=stratified,
            seed=own_seed,
        )

    def streams() -> tuple[list[Stream], float]:
        if arrivals is not None:
            shares = [cohort.rate_per_s or cohort.weight or 1.0 for cohort in cohorts]
            rng = generator(seed, 2, 0)
            every = [source(number) for number in range(len(cohorts))]
            return [OpenStream(TraceTimes(arrivals), every, shares, rng)], 0.0
        return _streams(cohorts, source, seed)

    def batches() -> Iterator[RequestColumns]:
        made, rate_per_s = streams()
        # Sessions begin long before their last turns, so a large window would make many that are not asked for.
        wanted = window_requests if requests is None else min(window_requests, max(requests // 4, 64))
        window_ns = max(round(wanted / rate_per_s * NS), 1) if rate_per_s else 60 * NS
        yield from batches_of(merged_rows(made, window_ns, end_ns), requests)

    header = WorkloadHeader(
        name=", ".join(cohort.name for cohort in cohorts[:3]) + (" ..." if len(cohorts) > 3 else ""),
        source=f"{len(cohorts)} cohort{'s' * (len(cohorts) > 1)}, seed {seed}",
        block_tokens=block_tokens,
        tenants=tenants,
        boundaries=boundaries,
        notes=_notes(cohorts) if arrivals is None else (f"arrivals are those of {arrivals.header.name}",),
    )
    return Workload(header, batches)


def _streams(cohorts: Sequence[Cohort], source: _Source, seed: int) -> tuple[list[Stream], float]:
    """One stream a tenant, and one for each cohort of users; and requests a second of all together."""
    made: list[Stream] = []
    rate_per_s = 0.0
    by_tenant: dict[str, list[int]] = {}
    for number, cohort in enumerate(cohorts):
        if cohort.rate_per_s is not None:
            by_tenant.setdefault(cohort.tenant, []).append(number)
        elif cohort.users is not None:
            requests = source(number)
            waiting = (
                AgentUsers(requests, cohort.users)
                if isinstance(requests, Sessions)
                else ClosedStream(requests, cohort.users)
            )
            made.append(waiting)
            rate_per_s += waiting.rate_per_s
    for place, numbers in enumerate(by_tenant.values()):
        rates = [cohorts[number].rate_per_s or 0.0 for number in numbers]
        burstiness = sum(
            rate * cohorts[number].burstiness for rate, number in zip(rates, numbers, strict=True)
        ) / sum(rates)
        gaps: Arrivals = Renewal(sum(rates), burstiness, generator(seed, 1, place))
        sources = [source(number) for number in numbers]
        made.append(OpenStream(gaps, sources, rates, generator(seed, 2, place)))
        rate_per_s += sum(
            rate * (one.turns_of_each if isinstance(one, Sessions) else 1)
            for rate, one in zip(rates, sources, strict=True)
        )
    return made, rate_per_s


def _first_ids(cohorts: Sequence[Cohort], block_tokens: int) -> list[int]:
    """Where each cohort's identities begin: those of shared texts close together, then room for each agent's sessions."""
    texts = [
        0 if cohort.agent else cohort.prefixes * ids_per_text(cohort, block_tokens) for cohort in cohorts
    ]
    ends = list(accumulate(texts))
    agents = accumulate(bool(cohort.agent) for cohort in cohorts)
    return [
        _SESSION_IDS * agent if cohort.agent else end - own
        for cohort, own, end, agent in zip(cohorts, texts, ends, agents, strict=True)
    ]


def _notes(cohorts: Sequence[Cohort]) -> tuple[str, ...]:
    waiting = [cohort.name for cohort in cohorts if cohort.users is not None or cohort.agent is not None]
    if not waiting:
        return ()
    named = ", ".join(repr(name) for name in waiting[:3]) + (" ..." if len(waiting) > 3 else "")
    speed = f"{PREFILL_TOKENS_PER_S:,} prompt and {DECODE_TOKENS_PER_S} output tokens a second"
    return (f"requests of {named} wait for answers; their arrival times are nominal ({speed})",)
