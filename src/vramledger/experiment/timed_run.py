"""A stage as its engine saw it: who came when, and when they had their tokens."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.experiment.served import Served
from vramledger.simulation.step_fit import Timing
from vramledger.simulation.step_model import PS_PER_NS
from vramledger.simulation.timed_run import TimedRun
from vramledger.workload.request import Request, WorkloadHeader

HELD_OUT = 3
"""Of so many requests the last one is held out, in time: the last third of a stage."""


def timed_run(
    header: WorkloadHeader,
    requests: Sequence[Request],
    served: Sequence[Served],
    *,
    most_tokens: int | None = None,
) -> TimedRun:
    """The requests that reached the engine, at the instants at which they did and with the lengths that they had there; of a run whose output is more than
    `most_tokens` the first ones. `served` are rows of `requests` by their numbers, in any order and not of all.

    Who was refused or failed without a token was no load. Who left is load until then, and timed by nothing.
    """
    came = sorted((row for row in served if _was_load(row)), key=lambda row: (_came_ns(row), row.number))
    left_tokens = most_tokens
    asked: list[Request] = []
    timings: list[Timing] = []
    for row in came:
        request = requests[row.number]
        at_ns = _came_ns(row)
        output_tokens = row.output_tokens if row.output_tokens is not None else row.events
        if left_tokens is not None:
            left_tokens -= output_tokens
            if left_tokens < 0:
                break
        asked.append(
            Request(
                arrival_ns=at_ns,
                prompt_tokens=row.prompt_tokens or request.prompt_tokens,
                output_tokens=max(1, output_tokens if row.whole else request.output_tokens),
                max_output_tokens=request.max_output_tokens,
                blocks=request.blocks,
                boundary=request.boundary,
                tenant=request.tenant,
                branches=request.branches,
                cancel_ns=None if row.whole else max(1, row.end_ns - at_ns),
                priority=request.priority,
            )
        )
        if row.whole and at_ns <= row.first_token_ns <= row.last_token_ns:
            timings.append(
                Timing(
                    number=len(asked) - 1,
                    first_token_ps=row.first_token_ns * PS_PER_NS,
                    end_ps=row.last_token_ns * PS_PER_NS,
                )
            )
    cut = len(asked) - len(asked) // HELD_OUT
    return TimedRun(
        requests=tuple(asked),
        known=tuple(timing for timing in timings if timing.number < cut),
        held_out=tuple(timing for timing in timings if timing.number >= cut),
        block_tokens=header.block_tokens,
    )


def _was_load(row: Served) -> bool:
    return row.sent_ns >= 0 and (row.whole or row.left) and row.status in (0, 200)


def _came_ns(row: Served) -> int:
    """When the engine had it: the try that was answered."""
    return max(0, row.sent_ns + row.waited_to_retry_ns)
