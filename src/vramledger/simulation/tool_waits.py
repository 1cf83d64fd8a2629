"""Keeping, moving or dropping a conversation's KV while its next turn is prepared, compared by what each wastes.

The accounting is InferCept's (Abhyankar et al., ICML 2024): memory that is held times how long nobody gets anything for it.
Preserving holds the context for the wait. Discarding computes it anew, chunk by chunk: what is there so far is held
meanwhile, and everybody else's memory as well, since their steps wait for those chunks. Swapping holds the context while it moves,
out and back; transfers run beside the steps and keep nobody else waiting. An engine does not know how long a wait will be, so
besides the pure policies there are patient ones, that preserve for a while and then swap or discard, one whose patience is learned from the
waits before (`admission.tool_wait`), and the least of the three in hindsight, which none can beat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from vramledger.admission.tool_wait import WaitAction, WaitBook
from vramledger.admission.tool_wait import WaitCosts as PlanCosts
from vramledger.errors import InputError
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_model import PS_PER_NS, PS_PER_S, StepModel
from vramledger.units import ceil_div
from vramledger.workload.wait import Wait

if TYPE_CHECKING:
    from vramledger.workload.columns import Workload

NS_PER_MS = 1_000_000
_KIND = "turn"
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


class WaitCosts(Struct, frozen=True, kw_only=True):
    """What the policies cost on an instance.

    `chunk_tokens` are computed in a step, `other_tokens` are held by others meanwhile. FLOPs are
    `flops_per_token` for each recomputed token and `flops_per_pair` for each of its (query, key) pairs.
    """

    step: StepModel
    chunk_tokens: int
    other_tokens: int
    kv_bytes_per_token: int
    host_link_bytes_per_s: int
    flops_per_token: int = 0
    flops_per_pair: int = 0


class Bill(NamedTuple):
    """What a wait took: token-picoseconds held for nobody and held while others were kept waiting, and what was moved and computed."""

    idle_token_ps: int = 0
    stalled_token_ps: int = 0
    link_bytes: int = 0
    recomputed_tokens: int = 0
    recompute_ps: int = 0
    recompute_pairs: int = 0

    @property
    def waste_token_ps(self) -> int:
        return self.idle_token_ps + self.stalled_token_ps

    def plus(self, other: Bill) -> Bill:
        return Bill(*map(sum, zip(self, other, strict=True)))


class ToolWaitRow(Struct, frozen=True, kw_only=True):
    """A policy's sums over all waits.

    `policy` is preserve, swap, discard, "preserve, then swap", "preserve, then discard", "learned" or "least in hindsight". The patient ones preserve
    for `patience_s`, the wait at `wait_quantile`. `waste_token_s` is `idle_token_s` (held for nobody) and `stalled_token_s` (held
    while a context is computed anew, others' included). `found_share` is the share of waits after which the context was still on the device.
    """

    policy: str
    wait_quantile: float | None = None
    patience_s: float | None = None
    waits: int
    found_share: float
    idle_token_s: float
    stalled_token_s: float
    waste_token_s: float
    link_bytes: int
    link_s: float
    recomputed_tokens: int
    recompute_s: float
    recompute_flops: int


def compare_tool_waits(
    workload: Workload,
    settings: SimulationSettings,
    *,
    other_tokens: int | None = None,
    flops_per_token: int = 0,
    flops_per_pair: int = 0,
    quantiles: Sequence[float] = QUANTILES,
) -> tuple[ToolWaitRow, ...]:
    """The policies on a workload's waits, on the instance of `settings`.

    `other_tokens` are those held by others while one context is computed anew; None is the rest of a full pool, for only where the
    pool is full is anything wasted. Swapping is left out where the link or a token's bytes are not known. Raises InputError for a workload
    in which no request follows another and begins with something of it.
    """
    from vramledger.workload.columnar.waits import waits_of

    waits = waits_of(workload)
    if not waits:
        raise InputError(
            f"{workload.header.name}: no request follows another and shares blocks with it, so there is no wait to compare"
        )
    layout = settings.layout
    if other_tokens is None:
        mean = sum(wait.context_tokens for wait in waits) // len(waits)
        other_tokens = max(0, layout.usable_blocks * layout.key_tokens - mean)
    token_bytes = settings.fleet.kv_bytes_per_token or ceil_div(layout.block_bytes, layout.key_tokens)
    costs = WaitCosts(
        step=settings.step,
        chunk_tokens=settings.scheduler.max_num_batched_tokens,
        other_tokens=other_tokens,
        kv_bytes_per_token=token_bytes,
        host_link_bytes_per_s=settings.host_link_bytes_per_s,
        flops_per_token=flops_per_token,
        flops_per_pair=flops_per_pair,
    )
    return compared(waits, costs, quantiles)


def compared(
    waits: Sequence[Wait], costs: WaitCosts, quantiles: Sequence[float] = QUANTILES
) -> tuple[ToolWaitRow, ...]:
    """The rows for given waits: the pure policies, the patient ones by quantile of the waits, the least in hindsight."""
    can_swap = bool(costs.host_link_bytes_per_s and costs.kv_bytes_per_token)
    discards = {wait.context_tokens: discarded(wait.context_tokens, costs) for wait in waits}

    def preserve(wait: Wait) -> Bill:
        return Bill(idle_token_ps=wait.context_tokens * wait.wait_ns * PS_PER_NS)

    def discard(wait: Wait) -> Bill:
        return discards[wait.context_tokens]

    def swap(wait: Wait) -> Bill:
        return swapped(wait.context_tokens, wait.wait_ns * PS_PER_NS, costs)

    pure: dict[str, Callable[[Wait], Bill]] = {"preserve": preserve, "discard": discard}
    if can_swap:
        pure["swap"] = swap
    rows = [
        _row(name, waits, map(bill, waits), costs, found=len(waits) if name == "preserve" else 0)
        for name, bill in pure.items()
    ]
    for fallback in [name for name in pure if name != "preserve"]:
        for quantile in quantiles:
            patience_ns = wait_at(waits, quantile)

            def patient(wait: Wait, patience_ns: int = patience_ns, fallback: str = fallback) -> Bill:
                if wait.wait_ns <= patience_ns:
                    return preserve(wait)
                waited = preserve(wait._replace(wait_ns=patience_ns))
                return waited.plus(pure[fallback](wait._replace(wait_ns=wait.wait_ns - patience_ns)))

            rows.append(
                _row(
                    f"preserve, then {fallback}",
                    waits,
                    map(patient, waits),
                    costs,
                    found=sum(wait.wait_ns <= patience_ns for wait in waits),
                    wait_quantile=quantile,
                    patience_s=patience_ns / 1e9,
                )
            )
    learned = list(_learned(waits, costs, can_swap=can_swap))
    rows.append(
        _row("learned", waits, (bill for bill, _ in learned), costs, found=sum(kept for _, kept in learned))
    )
    least = [
        min(((bill(wait), name) for name, bill in pure.items()), key=lambda pair: pair[0].waste_token_ps)
        for wait in waits
    ]
    rows.append(
        _row(
            "least in hindsight",
            waits,
            (bill for bill, _ in least),
            costs,
            found=sum(name == "preserve" for _, name in least),
        )
    )
    return tuple(rows)


def discarded(context_tokens: int, costs: WaitCosts) -> Bill:
    """A context is computed anew in chunks; at each chunk's end it holds that much, and all others are held with it."""
    stalled = spent = pairs = 0
    for before in range(0, context_tokens, costs.chunk_tokens):
        tokens = min(costs.chunk_tokens, context_tokens - before)
        chunk_pairs = tokens * (before + tokens // 2)
        took = costs.step.step_ps(tokens=tokens, decode_seqs=0, kv_tokens=before, pairs=chunk_pairs)
        stalled += took * (before + tokens + costs.other_tokens)
        spent += took
        pairs += chunk_pairs
    return Bill(
        stalled_token_ps=stalled,
        recomputed_tokens=context_tokens,
        recompute_ps=spent,
        recompute_pairs=pairs,
    )


def swapped(context_tokens: int, wait_ps: int, costs: WaitCosts) -> Bill:
    """A context goes to the host and comes back; one that is wanted before it has left stays."""
    size = context_tokens * costs.kv_bytes_per_token
    way_ps = ceil_div(size * PS_PER_S, costs.host_link_bytes_per_s)
    if wait_ps < way_ps:
        return Bill(idle_token_ps=context_tokens * wait_ps, link_bytes=size)
    return Bill(idle_token_ps=2 * context_tokens * way_ps, link_bytes=2 * size)


def _learned(waits: Sequence[Wait], costs: WaitCosts, *, can_swap: bool) -> Iterator[tuple[Bill, bool]]:
    """Each wait as `admission.tool_wait` plans it by those before it, for a full pool, and whether its context was kept to the end."""
    book = WaitBook()
    for wait in waits:
        size = wait.context_tokens * costs.kv_bytes_per_token
        move_ps = ceil_div(size * PS_PER_S, costs.host_link_bytes_per_s) if can_swap else None
        plan = book.plan(
            _KIND,
            PlanCosts(
                context_tokens=wait.context_tokens,
                recompute_ps=discarded(wait.context_tokens, costs).recompute_ps,
                other_tokens=costs.other_tokens,
                move_ps=move_ps,
            ),
        )
        patience_ns = wait.wait_ns if plan.patience_ms is None else plan.patience_ms * NS_PER_MS
        book.ended(_KIND, wait.wait_ns // NS_PER_MS)
        held = Bill(idle_token_ps=wait.context_tokens * min(wait.wait_ns, patience_ns) * PS_PER_NS)
        if wait.wait_ns <= patience_ns and plan.patience_ms != 0:
            yield held, True
        elif plan.then is WaitAction.OFFLOAD:
            left_ps = (wait.wait_ns - patience_ns) * PS_PER_NS
            yield held.plus(swapped(wait.context_tokens, left_ps, costs)), False
        else:
            yield held.plus(discarded(wait.context_tokens, costs)), False


def wait_at(waits: Sequence[Wait], quantile: float) -> int:
    """The wait, in nanoseconds, that at least this share of the waits do not exceed."""
    if not 0 < quantile <= 1:
        raise InputError(f"a quantile is above 0 and at most 1, not {quantile}")
    lengths = sorted(wait.wait_ns for wait in waits)
    return lengths[ceil(Fraction(str(quantile)) * len(lengths)) - 1]


def _row(
    policy: str,
    waits: Sequence[Wait],
    bills: Iterable[Bill],
    costs: WaitCosts,
    *,
    found: int,
    wait_quantile: float | None = None,
    patience_s: float | None = None,
) -> ToolWaitRow:
    total = Bill()
    for bill in bills:
        total = total.plus(bill)
    return ToolWaitRow(
        policy=policy,
        wait_quantile=wait_quantile,
        patience_s=patience_s,
        waits=len(waits),
        found_share=found / len(waits),
        idle_token_s=total.idle_token_ps / PS_PER_S,
        stalled_token_s=total.stalled_token_ps / PS_PER_S,
        waste_token_s=total.waste_token_ps / PS_PER_S,
        link_bytes=total.link_bytes,
        link_s=total.link_bytes / costs.host_link_bytes_per_s if total.link_bytes else 0.0,
        recomputed_tokens=total.recomputed_tokens,
        recompute_s=total.recompute_ps / PS_PER_S,
        recompute_flops=total.recomputed_tokens * costs.flops_per_token
        + total.recompute_pairs * costs.flops_per_pair,
    )
