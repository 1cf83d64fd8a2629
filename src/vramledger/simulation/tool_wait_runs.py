"""The same workload served with each way to spend a tool wait: what it did to the pool, and to the turns after the waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.run import check, simulate
from vramledger.simulation.settings import SimulationSettings, ToolWait
from vramledger.simulation.step_model import PS_PER_S

if TYPE_CHECKING:
    from vramledger.workload.columns import Workload


class ToolWaitRun(Struct, frozen=True, kw_only=True):
    """One run. TTFT is that of the turns that follow another, of those that were served."""

    tool_wait: ToolWait
    later_turns: int
    finished: int
    ttft_mean_s: float
    ttft_p99_s: float
    hit_tokens: int
    computed_tokens: int
    preemptions: int
    kept_token_s: float
    host_link_bytes: int
    end_s: float


def run_tool_waits(
    workload: Workload, settings: SimulationSettings, *, waits: tuple[ToolWait, ...] = tuple(ToolWait)
) -> tuple[ToolWaitRun, ...]:
    """A run for each of `waits`, equal in all else. Raises InputError for settings that one of them contradicts."""
    for wait in waits:
        check(replace(settings, tool_wait=wait))
    later = {number for number, request in enumerate(workload.requests()) if request.parent is not None}
    return tuple(_run(workload, replace(settings, tool_wait=wait), later) for wait in waits)


def _run(workload: Workload, settings: SimulationSettings, later: set[int]) -> ToolWaitRun:
    run, columns = simulate(workload, settings)
    assert columns is not None
    turns = [outcome for outcome in columns.outcomes() if outcome.number in later]
    times = sorted(map(_ttft_ps, (one for one in turns if one.first_token_ps >= 0)))
    counters = run.counters
    return ToolWaitRun(
        tool_wait=settings.tool_wait,
        later_turns=len(turns),
        finished=sum(one.status is Status.FINISHED for one in turns),
        ttft_mean_s=sum(times) / len(times) / PS_PER_S if times else 0.0,
        ttft_p99_s=times[-(-99 * len(times) // 100) - 1] / PS_PER_S if times else 0.0,
        hit_tokens=sum(one.hit_tokens for one in counters),
        computed_tokens=sum(one.computed_tokens for one in counters),
        preemptions=sum(one.preemptions for one in counters),
        kept_token_s=sum(one.kept_token_ps for one in counters) / PS_PER_S,
        host_link_bytes=sum(one.host_link_bytes for one in counters),
        end_s=run.end_ps / PS_PER_S,
    )


def _ttft_ps(outcome: RequestOutcome) -> int:
    return outcome.first_token_ps - outcome.sent_ps
