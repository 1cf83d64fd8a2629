"""Several replicas in turn: where no request waits for another, none of them needs to know of the others while it runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vramledger.simulation.compiled import memory as at
from vramledger.simulation.compiled.coverage import Uncovered, uncovered_requests, undecided
from vramledger.simulation.compiled.engine import advance
from vramledger.simulation.compiled.loading import fitting, new_memory, outcomes_of, with_batch
from vramledger.simulation.compiled.memory import Ints
from vramledger.simulation.compiled.results import counters_of, samples_of
from vramledger.simulation.outcome import Run
from vramledger.simulation.outcome_columns import OutcomeColumns
from vramledger.simulation.settings import SimulationSettings
from vramledger.workload.columns import BATCH, RequestColumns, Workload


def simulate_fleet(
    workload: Workload,
    settings: SimulationSettings,
    *,
    samples: int,
    sink: Callable[[OutcomeColumns], None] | None,
    progress: Callable[[int], None] | None,
) -> tuple[Run, OutcomeColumns | None]:
    """As `simulate_compiled`, of replicas whose requests are dealt out in turn. Holds the whole workload in memory."""
    table = workload.table()
    for reason in uncovered_requests(table, settings):
        raise Uncovered(reason)
    dealt = _dealt(table, settings)
    memories: list[Ints] = []
    stops: list[int] = []
    ended = 0
    for replica in range(settings.fleet.replicas):
        m = new_memory(settings, id_tokens=workload.header.block_tokens, samples=samples)
        m[at.IS_OF_MANY] = 1
        m = with_batch(m, _rows(table, np.flatnonzero(dealt == replica)), settings, told=0)
        memories.append(m)
        stops.append(advance(m, at.FOREVER))
        if stops[-1] == at.UNDECIDED:
            raise Uncovered(undecided(settings))
        ended += int(m[at.ENDED_COUNT])
        if progress is not None:
            progress(ended)
    end_ps = max(int(m[at.END_PS]) for m in memories)
    is_cut_short = at.CUT_SHORT in stops
    for m, stop in zip(memories, stops, strict=True):
        if stop != at.CUT_SHORT:
            # What still waits is given up when nothing comes on any replica, and the pool is looked at until then.
            m[at.NOW] = end_ps
            m[at.IS_OF_MANY] = is_cut_short
            advance(m, at.FOREVER)
    run = Run(
        counters=tuple(counters_of(m) for m in memories),
        samples=tuple(
            sorted(
                (sample for replica, m in enumerate(memories) for sample in samples_of(m, replica)),
                key=lambda sample: (sample.at_ps, sample.replica),
            )
        ),
        end_ps=end_ps,
        is_compiled=True,
    )
    outcomes = _merged(memories, dealt)
    if sink is None:
        return run, outcomes
    for start in range(0, table.rows, BATCH):
        sink(OutcomeColumns(*(column[start : start + BATCH] for column in outcomes)))
    return run, None


def _dealt(table: RequestColumns, settings: SimulationSettings) -> Ints:
    """The replica of each request: in turn as they are sent, whatever never fits left out (and put with the first)."""
    order = np.lexsort((np.arange(table.rows), table.arrival_ns))
    sent = order[fitting(table, settings)[order]]
    dealt = np.zeros(table.rows, dtype=np.int64)
    dealt[sent] = np.arange(len(sent), dtype=np.int64) % settings.fleet.replicas
    return dealt


def _rows(table: RequestColumns, rows: Ints) -> RequestColumns:
    """Some requests of a table, as one of its own; no request's parent is among them."""
    lengths = np.diff(table.block_offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    picks = np.repeat(table.block_offsets[:-1][rows] - offsets[:-1], lengths) + np.arange(
        offsets[-1], dtype=np.int64
    )
    columns = {name: getattr(table, name)[rows] for name in table._fields[:-2]}
    return RequestColumns(**columns, block_offsets=offsets, block_ids=table.block_ids[picks])


def _merged(memories: list[Ints], dealt: Ints) -> OutcomeColumns:
    """Outcomes in the workload's order."""
    made = [np.zeros(len(dealt), dtype=np.int64) for _ in OutcomeColumns._fields]
    for replica, m in enumerate(memories):
        places = np.flatnonzero(dealt == replica)
        for column, part in zip(made, outcomes_of(m, len(places), replica=replica), strict=True):
            column[places] = part
    made[0] = np.arange(len(dealt), dtype=np.int64)
    return OutcomeColumns(*made)
