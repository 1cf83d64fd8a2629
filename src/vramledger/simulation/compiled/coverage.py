"""What the compiled simulator does not do, so that the readable one does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramledger.simulation.settings import Router, Scheduling, SimulationSettings, ToolWait

if TYPE_CHECKING:
    from vramledger.workload.columns import RequestColumns

MOST_PS = 2**62
"""Beyond this many picoseconds sums could leave 64 bits."""
_MOST_NS = 9_000_000_000_000_000
_MOST_TOKENS = 2**31


class Uncovered(Exception):
    """The compiled simulator does not do what is asked; the message says what, as the end of a sentence with "does not cover"."""


def uncovered_settings(settings: SimulationSettings) -> Iterator[str]:
    """Each thing in settings that the compiled simulator does not cover."""
    scheduler, layout, fleet, step = settings.scheduler, settings.layout, settings.fleet, settings.step
    if scheduler.scheduling is Scheduling.LLAMACPP:
        yield f"the scheduler {scheduler.scheduling.value}"
    elif scheduler.scheduling is not Scheduling.VLLM:
        if scheduler.async_scheduling:
            yield f"the scheduler {scheduler.scheduling.value} with asynchronous scheduling"
        is_short = scheduler.max_num_seqs > scheduler.max_num_batched_tokens
        if scheduler.priority or (is_short and scheduler.scheduling is not Scheduling.SGLANG):
            yield f"the scheduler {scheduler.scheduling.value} with priorities or steps of fewer tokens than sequences"
    elif scheduler.async_scheduling and (
        scheduler.priority
        or scheduler.long_prefill_token_threshold
        or scheduler.max_num_seqs > scheduler.max_num_batched_tokens
    ):
        yield "asynchronous scheduling with priorities, a long prefill threshold or steps of fewer tokens than sequences"
    if not layout.is_plain or layout.groups[0].admission_blocks is not None:
        yield "pools with groups, windows or states"
    if fleet.prefill_replicas:
        yield "replicas that only prefill"
    elif fleet.replicas != 1 and fleet.router is not Router.ROUND_ROBIN:
        yield f"the router {fleet.router.value}"
    if settings.tool_wait is not ToolWait.RELEASE:
        yield f"the tool wait policy {settings.tool_wait.value}"
    largest = max(
        scheduler.max_num_batched_tokens, scheduler.max_model_len, scheduler.max_num_seqs, layout.num_blocks
    )
    if largest >= _MOST_TOKENS:
        yield f"a limit of {largest:,} tokens, sequences or blocks"
    # The longest step: every token of the budget, every sequence's cache.
    kv_tokens = layout.usable_blocks * layout.groups[0].block_tokens * 64
    longest_ps = step.step_ps(
        tokens=scheduler.max_num_batched_tokens,
        decode_seqs=min(scheduler.max_num_seqs, scheduler.max_num_batched_tokens),
        kv_tokens=kv_tokens,
        pairs=scheduler.max_num_batched_tokens * 2 * scheduler.max_model_len,
    )
    if (
        longest_ps * 1024 >= MOST_PS
        or min(step.overhead_ps, step.floor_ps, step.token_ps, step.decode_seq_ps) < 0
    ):
        yield f"steps of up to {longest_ps} ps"
    if settings.time_limit_ps is not None and not 0 <= settings.time_limit_ps < MOST_PS:
        yield f"a time limit of {settings.time_limit_ps} ps"


def uncovered_requests(batch: RequestColumns, settings: SimulationSettings) -> Iterator[str]:
    """Each thing in a batch of requests that the compiled simulator does not cover."""
    if not batch.rows:
        return
    if settings.fleet.replicas > 1 and settings.follow_parents and (batch.parent >= 0).any():
        yield "conversations over several replicas"
    if (batch.branches != 1).any():
        yield "requests with branches"
    if (batch.prompt_tokens < 1).any():
        yield "requests without a prompt"
    if max(int(batch.prompt_tokens.max()), int(batch.output_tokens.max())) >= _MOST_TOKENS:
        yield f"requests of more than {_MOST_TOKENS} tokens"
    if int(batch.arrival_ns.min()) < 0 or int(batch.arrival_ns.max()) > _MOST_NS:
        yield "arrivals before the start or after 104 days"
    waits = (batch.pause_ns, batch.cancel_ns, batch.first_token_deadline_ns, batch.deadline_ns)
    if settings.scheduler.async_scheduling and any(int(column.max()) >= 0 for column in waits[1:]):
        yield "cancellations and deadlines under asynchronous scheduling"
    if any(int(column.max()) > _MOST_NS // 64 for column in waits):
        yield "pauses and deadlines of more than 39 hours"
    if int(abs(batch.priority).max()) >= 2**22:
        yield "priorities beyond 4 million"
    if int(batch.boundary.max()) >= 2**31:
        yield "boundaries beyond 2 billion"


def undecided(settings: SimulationSettings) -> str:
    """What a run was found not to cover while it went on."""
    if settings.scheduler.scheduling is Scheduling.VLLM:
        return "a workload that evicts itself for ever under asynchronous scheduling"
    return "a batch that was found to fit and then does not"
