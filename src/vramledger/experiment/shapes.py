"""What a stage of an experiment sends: the plan's workload, or one made for the engine, shaped as the stage is to be.

The same requests go to the live engine and to the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from math import exp, log
from pathlib import Path
from random import Random
from statistics import median_low
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.experiment.builtin_cohorts import (
    LEAST_TOKENS,
    PREFIX_HIT,
    PREFIX_TEXTS,
    mixed_cohorts,
    short_cohorts,
    tool_cohorts,
)
from vramledger.experiment.extra import not_installed
from vramledger.experiment.plan import ExperimentPlan, Kind
from vramledger.experiment.replay import MOST_REQUESTS, replayed
from vramledger.units import counted
from vramledger.workload import builtin
from vramledger.workload.cohort import Cohort, with_rate
from vramledger.workload.cohort_file import is_cohort_file, read_cohorts
from vramledger.workload.quantiles import Quantiles
from vramledger.workload.request import Request, WorkloadHeader

if TYPE_CHECKING:
    from vramledger.workload.columns import Workload

MARGIN_TOKENS = 8
"""Of the context, left free: engines differ by a token or two in what they take."""
BLOCK_TOKENS = 16
BURSTINESS = 3.0
"""Of arrivals in bursts, at least: the coefficient of variation of their gaps."""
LEAVE = 0.25
"""The share of clients that leave, where clients leave."""
MOST_PER_S = 1e7
MOST_READ = 1_000_000
"""Requests of a trace that are held."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A person's own workload: cohorts, or the requests of a trace in order with what its header says."""

    name: str
    cohorts: tuple[Cohort, ...] = ()
    header: WorkloadHeader | None = None
    requests: tuple[Request, ...] = ()


def read_source(path: str | Path) -> Source:
    """The workload that a plan names: a cohort file (.toml, .json), a trace of any format that is found out, or builtin:NAME.

    Raises SourceError where it cannot be read, InputError where it is neither or the extra is missing.
    """
    path = builtin.path_of(path)
    if is_cohort_file(path):
        return Source(name=path.name, cohorts=read_cohorts(path))
    try:
        from vramledger.workload.columnar.reading import read_workload
    except ImportError as problem:
        raise not_installed(problem) from None
    trace = read_workload(path)
    held = tuple(islice(trace.requests(), MOST_READ + 1))
    if len(held) > MOST_READ:
        raise InputError(
            f"{path.name} has more than {MOST_READ:,} requests; cut it with `vramledger workload --limit`",
            file=path.name,
        )
    return Source(name=path.name, header=trace.header, requests=held)


def checked_source(plan: ExperimentPlan, source: Source | None) -> None:
    """Raises InputError for a plan whose arrivals are those of a trace, and a workload that is none."""
    if plan.arrivals == "trace" and (source is None or not source.requests):
        raise InputError('arrivals are "trace", but the plan\'s workload is no trace', arrivals=plan.arrivals)


def stage_requests(
    plan: ExperimentPlan,
    kind: Kind,
    *,
    per_s: float,
    seconds: float,
    seed: int,
    context_len: int,
    pool_tokens: int | None,
    source: Source | None,
    typical_ns: int | None = None,
) -> tuple[WorkloadHeader, tuple[Request, ...]]:
    """The requests of a stage, in order of arrival, none longer than the engine takes.

    `per_s` counts requests that follow no other (of agents: sessions). A stage of `seconds` has the requests that come within it, later
    turns by their nominal times. `typical_ns` is how long a request takes, from what was measured before: clients that leave do
    so within that (None: within what the plan's aims allow), a quarter of them and one at least. Requests longer than the context or the pool are cut, and the header's notes say how many.

    A workload without conversations has none that wait for tools: those are made for the engine then.

    Raises InputError for an engine too small, a rate or time that is none, and arrivals "trace" without a trace.
    """
    if not (0 < per_s <= MOST_PER_S and seconds > 0):
        raise InputError(f"a stage of {seconds:g} s at {per_s:g} requests a second is none that can be sent")
    if kind is Kind.BURST:
        plan = replace(plan, arrivals="gamma", burstiness=max(plan.burstiness, BURSTINESS))
    longest = min(context_len, pool_tokens or context_len) - MARGIN_TOKENS
    if longest < LEAST_TOKENS:
        raise InputError(
            f"the engine takes requests of at most {longest + MARGIN_TOKENS} tokens (context {context_len:,}, pool "
            f"{'unknown' if pool_tokens is None else format(pool_tokens, ',')}), too few for an experiment",
            context_len=context_len,
            pool_tokens=pool_tokens,
        )
    if source is not None and source.requests and (kind is not Kind.TOOLS or _has_turns(source)):
        header, requests = _of_trace(plan, kind, source, per_s, seconds, seed)
    else:
        checked_source(plan, source)
        cohorts = _cohorts(kind, source.cohorts if source is not None else (), longest)
        header, requests = _sampled(cohorts, _burstiness(plan), per_s, seconds, seed)
    requests, cut = _fitted(requests, longest)
    notes = header.notes
    if cut:
        notes += (
            f"{counted(cut, 'request')} of {len(requests):,} cut to the {longest:,} tokens that the engine takes",
        )
    if kind is Kind.PREFIX_MISS:
        requests = tuple(replace(one, blocks=(), parent=None, conversation=None) for one in requests)
    if kind is Kind.CANCELLED:
        requests = _some_leave(requests, plan, typical_ns, seed)
        notes += (f"{LEAVE:.0%} of the clients leave early",)
    return replace(header, name=f"{kind.value}: {header.name}", notes=notes), requests


def _of_trace(
    plan: ExperimentPlan, kind: Kind, source: Source, per_s: float, seconds: float, seed: int
) -> tuple[WorkloadHeader, tuple[Request, ...]]:
    header, requests = source.header, source.requests
    assert header is not None
    if kind is Kind.SHORT:
        requests = _short_ones(requests)
    elif kind in (Kind.PREFIX_HIT, Kind.PREFIX_MISS):
        header, requests = _sharing(header, requests, seed)
    sent = replayed(
        requests,
        per_s=per_s,
        seconds=seconds,
        is_own_times=plan.arrivals == "trace",
        burstiness=_burstiness(plan),
        seed=seed,
    )
    return header, sent


def _has_turns(source: Source) -> bool:
    return any(one.parent is not None for one in source.requests)


def _short_ones(requests: Sequence[Request]) -> tuple[Request, ...]:
    """Those that are not longer than half of all, prompt and output, each by itself."""
    prompt = median_low(one.prompt_tokens for one in requests)
    output = median_low(one.output_tokens for one in requests)
    return tuple(
        replace(one, parent=None, conversation=None, blocks=())
        for one in requests
        if one.prompt_tokens <= prompt and one.output_tokens <= output
    ) or (min(requests, key=lambda one: one.prompt_tokens + one.output_tokens),)


def _sharing(
    header: WorkloadHeader, requests: Sequence[Request], seed: int
) -> tuple[WorkloadHeader, tuple[Request, ...]]:
    """The trace's lengths with prompts that begin with one of a few texts."""
    random = Random(f"prefix {seed}")  # noqa: S311
    longest = max(one.prompt_tokens for one in requests) // BLOCK_TOKENS + 1
    shared = []
    for one in requests:
        blocks = min(int(one.prompt_tokens * PREFIX_HIT), one.prompt_tokens - 1) // BLOCK_TOKENS
        first = random.randrange(PREFIX_TEXTS) * longest
        shared.append(
            replace(
                one, blocks=tuple(range(first, first + blocks)), boundary=0, parent=None, conversation=None
            )
        )
    note = f"prompts begin with one of {PREFIX_TEXTS} texts, {PREFIX_HIT:.0%} of each"
    return replace(header, block_tokens=BLOCK_TOKENS, notes=(*header.notes, note)), tuple(shared)


def _cohorts(kind: Kind, own: tuple[Cohort, ...], longest: int) -> tuple[Cohort, ...]:
    if kind is Kind.SHORT:
        return tuple(_shortened(one) for one in own) or short_cohorts(longest)
    if kind is Kind.TOOLS:
        return tuple(one for one in own if one.agent is not None) or tool_cohorts(longest)
    cohorts = own or mixed_cohorts(longest)
    if kind in (Kind.PREFIX_HIT, Kind.PREFIX_MISS):
        return tuple(
            replace(
                one,
                agent=None,
                retrieval=None,
                prefix_tokens=None,
                prefix_hit=PREFIX_HIT,
                prefixes=PREFIX_TEXTS,
            )
            for one in cohorts
        )
    return cohorts


def _shortened(cohort: Cohort) -> Cohort:
    """Its shorter half, as requests by themselves."""
    return replace(
        cohort,
        agent=None,
        retrieval=None,
        prefix_hit=None,
        prefix_tokens=None,
        prompt_tokens=_lower_half(cohort.prompts),
        output_tokens=_lower_half(cohort.outputs),
    )


def _lower_half(lengths: Quantiles) -> Quantiles:
    half = lengths.at(0.5)
    low = max(min(lengths.lowest, half), 1)
    return Quantiles(min=low, p50=lengths.at(0.25), p95=lengths.at(0.475), p99=lengths.at(0.495), max=half)


def _sampled(
    cohorts: Sequence[Cohort], burstiness: float, per_s: float, seconds: float, seed: int
) -> tuple[WorkloadHeader, tuple[Request, ...]]:
    try:
        from vramledger.workload.columnar.sampling import sample_workload
    except ImportError as problem:
        raise not_installed(problem) from None
    shaped = [replace(one, burstiness=burstiness) for one in with_rate(cohorts, per_s)]
    made: Workload = sample_workload(shaped, duration_s=seconds, requests=MOST_REQUESTS, seed=seed)
    return made.header, tuple(made.requests())


def _fitted(requests: Iterable[Request], longest: int) -> tuple[tuple[Request, ...], int]:
    """Requests of at most so many tokens, prompt and output together; and how many were longer. An output keeps up to half of the room."""
    fitted, cut = [], 0
    for one in requests:
        output = one.output_tokens
        prompt = min(one.prompt_tokens, longest - min(output, longest // 2))
        output = min(output, longest - prompt)
        bound = one.max_output_tokens
        if bound is not None:
            bound = max(min(bound, longest - prompt), output)
        cut += (prompt, output) != (one.prompt_tokens, one.output_tokens)
        fitted.append(replace(one, prompt_tokens=prompt, output_tokens=output, max_output_tokens=bound))
    return tuple(fitted), cut


def _some_leave(
    requests: Sequence[Request], plan: ExperimentPlan, typical_ns: int | None, seed: int
) -> tuple[Request, ...]:
    random = Random(f"leave {seed}")  # noqa: S311
    least = 0.05 if typical_ns else 0.01

    def leaves_ns(request: Request) -> int:
        # As many leave in each half of what is left: an engine that is far faster than its aims is left in the middle too.
        share = exp(log(least) * random.random())
        return max(round(share * (typical_ns or _allowed_ns(plan, request))), 1)

    left = tuple(
        replace(one, cancel_ns=leaves_ns(one)) if random.random() < LEAVE else one for one in requests
    )
    if not left or any(one.cancel_ns is not None for one in left):
        return left
    # Of few requests one leaves at least: that is what the stage is for.
    place = random.randrange(len(left))
    return (*left[:place], replace(left[place], cancel_ns=leaves_ns(left[place])), *left[place + 1 :])


def _allowed_ns(plan: ExperimentPlan, request: Request) -> int:
    """How long a request may take by the plan's aims."""
    slo = plan.slo
    first_ms = slo.ttft_ms if slo.ttft_ms is not None else 2000.0
    each_ms = slo.tpot_ms if slo.tpot_ms is not None else 200.0
    return round((first_ms + each_ms * request.output_tokens) * 1_000_000)


def _burstiness(plan: ExperimentPlan) -> float:
    return {"poisson": 1.0, "even": 0.0}.get(plan.arrivals, plan.burstiness)
