"""A workload through the compiled simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from vramledger.errors import InputError
from vramledger.simulation.compiled import memory as at
from vramledger.simulation.compiled.coverage import Uncovered, uncovered_requests, undecided
from vramledger.simulation.compiled.engine import advance
from vramledger.simulation.compiled.loading import leading_outcomes, new_memory, outcomes_of, with_batch
from vramledger.simulation.compiled.results import counters_of, samples_of
from vramledger.simulation.outcome import Run
from vramledger.simulation.outcome_columns import OutcomeColumns
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_model import PS_PER_NS
from vramledger.workload.columns import RequestColumns, Workload, joined

Sink = Callable[[OutcomeColumns], None]


def simulate_compiled(
    workload: Workload,
    settings: SimulationSettings,
    *,
    samples: int = 512,
    sink: Sink | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Run, OutcomeColumns | None]:
    """As `simulation.run.simulate`, for settings that `uncovered_settings` has nothing against. Raises Uncovered for requests.

    Batches are loaded one ahead of the one that runs. Where requests wait for others to end, or the run's time is bounded, the whole
    workload is loaded at once.
    """
    if settings.fleet.replicas > 1:
        from vramledger.simulation.compiled.fleet import simulate_fleet

        return simulate_fleet(workload, settings, samples=samples, sink=sink, progress=progress)
    kept: list[OutcomeColumns] = []
    give = kept.append if sink is None else sink
    m = new_memory(settings, id_tokens=workload.header.block_tokens, samples=samples)
    told, has_told = 0, False
    for batch, until_ps in _batches(workload, settings, is_last_word=sink is not None):
        m = with_batch(m, batch, settings, told=told)
        if advance(m, until_ps) == at.UNDECIDED:
            raise _cannot(undecided(settings), sink is not None and has_told)
        outcomes = leading_outcomes(m)
        told = len(outcomes.number)
        if told:
            give(outcomes)
            has_told = True
        if progress is not None:
            progress(int(m[at.ENDED_COUNT]))
    if not m[at.LOADED]:
        advance(m, at.FOREVER)
    rest = outcomes_of(m, int(m[at.LOADED] - m[at.BASE]))
    give(OutcomeColumns(*(column[told:] for column in rest)))
    run = Run(
        counters=(counters_of(m),),
        samples=samples_of(m, 0),
        end_ps=int(m[at.END_PS]),
        is_compiled=True,
    )
    if sink is not None:
        return run, None
    return run, OutcomeColumns(*(np.concatenate(parts) for parts in zip(*kept, strict=True)))


def _batches(
    workload: Workload, settings: SimulationSettings, *, is_last_word: bool
) -> Iterator[tuple[RequestColumns, int]]:
    """Batches, and the instant from which on requests of later ones may be sent.

    Raises Uncovered for requests that cannot be run, or InputError where outcomes may be told already (`is_last_word`).
    """
    batches: Iterator[RequestColumns] = (batch for batch in workload.batches() if batch.rows)
    batch = next(batches, None)
    if batch is None:
        return
    if settings.time_limit_ps is not None or (settings.follow_parents and (batch.parent >= 0).any()):
        batch = joined((batch, *batches))
        batches = iter(())
    for reason in uncovered_requests(batch, settings):
        raise Uncovered(reason)
    loaded = batch.rows
    for following in batches:
        for reason in (
            *uncovered_requests(following, settings),
            *_out_of_order(batch, following, loaded, settings),
        ):
            raise _cannot(reason, is_last_word)
        yield batch, int(following.arrival_ns[0]) * PS_PER_NS
        loaded += following.rows
        batch = following
    yield batch, at.FOREVER


def _cannot(reason: str, is_last_word: bool) -> Exception:
    if not is_last_word:
        return Uncovered(reason)
    return InputError(
        f"the compiled simulator does not cover {reason}, and may have told what became of earlier requests; "
        "how='reference' does"
    )


def _out_of_order(
    batch: RequestColumns, following: RequestColumns, loaded: int, settings: SimulationSettings
) -> Iterator[str]:
    """Why batches cannot be run one by one: what an earlier one sends would depend on a later one."""
    arrivals = np.concatenate([batch.arrival_ns, following.arrival_ns])
    falls = np.flatnonzero(np.diff(arrivals) < 0)
    if len(falls):
        number = loaded - batch.rows + int(falls[0]) + 1
        yield f"a workload out of order (request {number} arrives before the one ahead of it)"
    if settings.follow_parents and (following.parent >= 0).any():
        number = loaded + int(np.flatnonzero(following.parent >= 0)[0])
        yield f"a workload whose first request that waits for another is number {number}"
