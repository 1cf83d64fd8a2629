"""A simulated run told as a measured one is: a row for each request, and the same figures of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from vramledger.experiment.load_figures import figures_of
from vramledger.experiment.result import LoadFigures
from vramledger.experiment.served import Served
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.settings import Slo
from vramledger.simulation.step_model import PS_PER_NS
from vramledger.workload.request import Request

STATUS = {Status.NEVER_FITS: 400, Status.REJECTED: 429, Status.FAILED: 500, Status.LIVELOCKED: 500}
"""What a live engine would have answered; 200 otherwise."""
LEFT = (Status.CANCELLED, Status.EXPIRED)


def foretold_rows(
    requests: Sequence[Request], outcomes: Iterable[RequestOutcome], outside_ns: int = 0
) -> tuple[Served, ...]:
    """The row of each request, its tokens `outside_ns` later than the engine's steps bring them. A client that leaves does so when it
    would, however late the engine gets to know of it."""
    rows = []
    for outcome in outcomes:
        request = requests[outcome.number]
        left = outcome.status in LEFT
        first_ns = _later(outcome.first_token_ps, outside_ns)
        end_ns = _later(outcome.end_ps, 0 if left else outside_ns)
        if left and first_ns > end_ns:
            first_ns = -1
        due_ns = max(outcome.sent_ps, 0) // PS_PER_NS
        rows.append(
            Served(
                number=outcome.number,
                tenant=request.tenant,
                conversation=request.conversation,
                parent=request.parent,
                due_ns=due_ns,
                sent_ns=due_ns if outcome.sent_ps >= 0 else -1,
                first_token_ns=first_ns,
                last_token_ns=end_ns if first_ns >= 0 else -1,
                end_ns=max(end_ns, due_ns),
                asked_prompt_tokens=request.prompt_tokens,
                asked_output_tokens=request.output_tokens,
                prompt_tokens=outcome.prompt_tokens,
                cached_prompt_tokens=outcome.hit_tokens,
                output_tokens=outcome.output_tokens if first_ns >= 0 else 0,
                events=outcome.output_tokens if first_ns >= 0 else 0,
                cancel_ns=request.cancel_ns,
                first_token_deadline_ns=request.first_token_deadline_ns,
                deadline_ns=request.deadline_ns,
                status=STATUS.get(outcome.status, 200),
                whole=outcome.status is Status.FINISHED,
                left=left,
                attempts=1,
                error="" if outcome.status in (Status.FINISHED, *LEFT) else outcome.status.name.lower(),
            )
        )
    return tuple(rows)


def foretold_figures(served: Sequence[Served], run: Run, layout: PoolLayout, slo: Slo) -> LoadFigures:
    """What `served` comes to, with what the simulator knows of the pool."""
    return replace(
        figures_of(served, slo),
        preemptions=sum(counters.preemptions for counters in run.counters),
        kv_usage_peak_ratio=max((sample.used_blocks for sample in run.samples), default=0)
        / layout.usable_blocks,
        running_peak=max((sample.running for sample in run.samples), default=0),
    )


def _later(time_ps: int, outside_ns: int) -> int:
    return -1 if time_ps < 0 else time_ps // PS_PER_NS + outside_ns
