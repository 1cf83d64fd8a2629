"""Cohorts fitted to a workload: sampled back they have its rate, bursts, lengths and prefix hits.

Requests are parted by tenant. A tenant's conversations of several turns become an agent (a trace that names none is searched for
prompts that go on from earlier ones); its other requests are parted by length, at p50, p95 and p99 of prompts and of outputs, so that these
quantiles come back whatever prompts and outputs have to do with each other. A tenant's cohorts share its arrivals. What remains of many small tenants is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from vramledger.errors import InputError
from vramledger.workload.cohort import LEAST_RATE, MOST_TOKENS, Cohort
from vramledger.workload.columnar.cells import between_quantiles, cells_of
from vramledger.workload.columnar.first_use import FirstUse
from vramledger.workload.columnar.fitted_agents import MS, AgentFit, quantiles_of
from vramledger.workload.columnar.inferred_turns import inferred_conversations
from vramledger.workload.columns import Workload
from vramledger.workload.quantiles import Quantiles

Ints = npt.NDArray[np.int64]
By = Literal["tenant", "length", "prefix"]
COHORTS = 16
MOST_TENANTS = 64
NS = 10**9
_MOST_TEXTS = 100_000
_USES_OF_A_TEXT = 4
_FEWEST_BY_LENGTH = 8
"""Fewer cells blur the quantiles that one cohort keeps."""


class _Numbers(NamedTuple):
    """What is kept of each request."""

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    max_output_tokens: Ints
    tenant: Ints
    conversation: Ints
    branches: Ints
    cancel_ns: Ints
    first_token_deadline_ns: Ints
    deadline_ns: Ints
    priority: Ints
    found_tokens: Ints
    owner: Ints
    """The request that had the last of the found blocks first, -1 where none was found."""
    number: Ints


class _Span(NamedTuple):
    """From the first to the last of all requests."""

    ns: int
    requests: int


def fit_cohorts(
    workload: Workload, *, by: Sequence[By] = ("tenant", "length", "prefix"), count: int = COHORTS
) -> tuple[Cohort, ...]:
    """About `count` cohorts, at least one a tenant (and at most 64 tenants, the smallest as one).

    Goes through the workload once, twice where it has conversations. Raises InputError for a workload of no requests.
    """
    numbers = _numbers(workload)
    rows = len(numbers.arrival_ns)
    if "prefix" in by and (numbers.conversation < 0).all() and workload.header.block_tokens:
        numbers = numbers._replace(conversation=_inferred(numbers, workload.header.block_tokens))
    if not rows:
        raise InputError(
            f"{workload.header.name} has no requests to fit cohorts to", name=workload.header.name
        )
    numbers = numbers._replace(conversation=_of_several_turns(numbers.conversation))
    tenants, names = _tenants(numbers.tenant, workload.header.tenants, "tenant" in by)
    span = _Span(int(numbers.arrival_ns.max() - numbers.arrival_ns.min()), rows)
    found: list[Cohort] = []
    for number, name in enumerate(names):
        here = np.flatnonzero(tenants == number)
        own = _Numbers(*(values[here] for values in numbers))
        talking = own.conversation >= 0
        starts = np.unique(own.conversation[talking], return_index=True)[1]
        comes_ns = np.sort(np.concatenate([own.arrival_ns[talking][starts], own.arrival_ns[~talking]]))
        if talking.any():
            found.append(_agent(workload, own, talking, name, comes_ns, span))
        rest = _Numbers(*(values[~talking] for values in own))
        if len(rest.arrival_ns):
            share = len(rest.arrival_ns) / rows
            cells = _cells(rest, by, max(round(count * share), 1))
            for cell in range(int(cells.max()) + 1):
                inside = _Numbers(*(values[cells == cell] for values in rest))
                found.append(_plain(inside, f"{name or 'requests'}-{cell + 1}", name, comes_ns, span))
    return tuple(found)


def _numbers(workload: Workload) -> _Numbers:
    block_tokens = workload.header.block_tokens
    first_use = FirstUse(block_tokens) if block_tokens else None
    parts: list[list[Ints]] = []
    rows = 0
    for batch in workload.batches():
        found, owners = (
            first_use.found(batch)
            if first_use
            else (np.zeros(batch.rows, dtype=np.int64), np.full(batch.rows, -1, dtype=np.int64))
        )
        tokens = np.minimum(found * (block_tokens or 0), batch.prompt_tokens)
        numbers = np.arange(rows, rows + batch.rows, dtype=np.int64)
        rows += batch.rows
        parts.append([*(getattr(batch, name) for name in _Numbers._fields[:-3]), tokens, owners, numbers])
    if not parts:
        return _Numbers(*(np.empty(0, dtype=np.int64) for _ in _Numbers._fields))
    return _Numbers(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _tenants(tenant: Ints, names: Sequence[str], apart: bool) -> tuple[Ints, list[str]]:
    """A number for each request, and what each number is called; largest first."""
    if not apart:
        return np.zeros(len(tenant), dtype=np.int64), [""]
    found, counts = np.unique(tenant, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(found), dtype=np.int64)
    place[order] = np.minimum(np.arange(len(found)), MOST_TENANTS - 1)
    called = [names[number] if number < len(names) else str(number) for number in found[order].tolist()]
    if len(called) > MOST_TENANTS:
        called = [*called[: MOST_TENANTS - 1], "others"]
    return place[np.searchsorted(found, tenant)], called


def _inferred(numbers: _Numbers, block_tokens: int) -> Ints:
    found_blocks = numbers.found_tokens // block_tokens
    return inferred_conversations(found_blocks, numbers.owner, numbers.prompt_tokens, block_tokens)


def _of_several_turns(conversation: Ints) -> Ints:
    """The conversation of each turn, -1 where it is the only one."""
    names, which, turns = np.unique(conversation, return_inverse=True, return_counts=True)
    several = np.where((names >= 0) & (turns > 1), names, -1)
    alone: Ints = several[which]
    return alone


def _cells(own: _Numbers, by: Sequence[By], count: int) -> Ints:
    """Cells by length; so few that texts which requests share are used several times in each."""
    hits = own.owner >= 0
    if hits.any():
        count = min(count, int(hits.sum() / len(np.unique(own.owner[hits])) / _USES_OF_A_TEXT))
    if "length" not in by or count < _FEWEST_BY_LENGTH:
        return np.zeros(len(own.arrival_ns), dtype=np.int64)
    return cells_of([between_quantiles(own.prompt_tokens), between_quantiles(own.output_tokens)], count)


def _plain(own: _Numbers, name: str, tenant_name: str, comes_ns: Ints, span: _Span) -> Cohort:
    shared: dict[str, Any] = {}
    share = float(own.found_tokens.sum() / max(own.prompt_tokens.sum(), 1))
    if share >= 0.0005:
        texts, skew = _texts(own)
        shared = {"prefix_hit": round(share, 4), "prefixes": texts, "prefix_skew": skew}
    return Cohort(
        name=name,
        tenant=tenant_name,
        prompt_tokens=_lengths(own.prompt_tokens),
        output_tokens=_lengths(own.output_tokens),
        **_when(len(own.arrival_ns), comes_ns, span),
        **shared,
        **_said(own),
        branches=int(np.median(own.branches)),
    )


def _agent(
    workload: Workload,
    own: _Numbers,
    talking: npt.NDArray[np.bool_],
    tenant_name: str,
    comes_ns: Ints,
    span: _Span,
) -> Cohort:
    turns = _Numbers(*(values[talking] for values in own))
    fit = AgentFit(workload.header.block_tokens)
    first = 0
    for batch in workload.batches():
        here = slice(*np.searchsorted(turns.number, (first, first + batch.rows)))
        fit.add(batch, turns.number[here] - first, turns.conversation[here])
        first += batch.rows
    starts = np.sort(np.unique(turns.conversation, return_index=True)[1])
    head = int(np.median(turns.found_tokens[starts[1:]])) if len(starts) > 2 else 0
    prompts = _lengths(turns.prompt_tokens)
    head = min(head, (prompts if isinstance(prompts, int) else prompts.lowest) - 1)
    return Cohort(
        name=f"{tenant_name or 'agents'}-sessions",
        tenant=tenant_name,
        prompt_tokens=prompts,
        output_tokens=_lengths(turns.output_tokens),
        **_when(len(starts), comes_ns, span),
        **_said(turns),
        agent=fit.agent(head),
    )


def _lengths(values: Ints) -> Quantiles | int:
    bounded = np.clip(values, 1, MOST_TOKENS)
    return int(bounded[0]) if (bounded == bounded[0]).all() else quantiles_of(bounded)


def _when(count: int, comes_ns: Ints, span: _Span) -> dict[str, Any]:
    """The rate of `count` requests, and how bursty their tenant's arrivals `comes_ns` are; a weight where there is no time.

    Turns after the first do not come by themselves and are none of them.
    """
    if not span.ns:
        return {"weight": float(count)}
    gaps = np.diff(comes_ns)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    burstiness = float(gaps.std()) / mean if mean else 1.0
    # Between the first and the last of n requests there are n - 1 gaps.
    rate = count * NS / span.ns * (span.requests - 1) / span.requests
    return {
        "rate_per_s": max(float(f"{rate:.6g}"), LEAST_RATE),
        "burstiness": float(f"{min(burstiness, 100.0):.4g}"),
    }


def _texts(own: _Numbers) -> tuple[int, float]:
    """How many texts are shared, told by who had them first, and how unevenly they are used.

    Use falls as 1 / rank ** skew such that the first is used as often as the most used was.
    """
    hits = own.owner >= 0
    uses = np.unique(own.owner[hits], return_counts=True)[1]
    texts = int(min(len(uses), _MOST_TEXTS))
    top = float(uses.max() / uses.sum())
    ranks = np.arange(1, texts + 1, dtype=np.float64)
    low, high = 0.0, 4.0
    for _ in range(40):
        skew = (low + high) / 2
        popularity = ranks**-skew
        low, high = (skew, high) if popularity[0] / popularity.sum() < top else (low, skew)
    return texts, round(low, 3)


def _said(own: _Numbers) -> dict[str, Any]:
    """What all requests of a cohort say alike."""
    said: dict[str, Any] = {}
    bounds = own.max_output_tokens
    if (bounds > 0).all():
        if (bounds == own.output_tokens).all():
            said["max_output_tokens"] = "output"
        elif (bounds == bounds[0]).all():
            said["max_output_tokens"] = int(bounds[0])
    if (own.priority == own.priority[0]).all():
        said["priority"] = int(own.priority[0])
    for name in ("first_token_deadline", "deadline"):
        values = getattr(own, f"{name}_ns")
        if (values > 0).all():
            said[f"{name}_ms"] = max(int(np.median(values)) // MS, 1)
    cancels = own.cancel_ns[own.cancel_ns >= 0]
    if len(cancels):
        said["cancel_probability"] = round(len(cancels) / len(own.cancel_ns), 6)
        said["cancel_after_ms"] = quantiles_of(cancels // MS)
    return said
