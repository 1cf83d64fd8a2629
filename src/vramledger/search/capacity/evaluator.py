"""One run of a study, in whichever process it falls to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from vramledger.search.capacity.study import Burst, Case, Measure, Outage, Study, Task
from vramledger.simulation.step_model import PS_PER_S
from vramledger.simulation.summary import pool_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramledger.simulation.measures import Mask
    from vramledger.simulation.outcome import PoolSample, Run
    from vramledger.simulation.outcome_columns import Ints, OutcomeColumns
    from vramledger.workload.columns import RequestColumns

NS_PER_S = 1_000_000_000
CALM = 100
"""Requests in a row by which it is told that service is as asked again."""
_DECODER = msgspec.msgpack.Decoder(Measure)


class Evaluator:
    """Answers tasks of one study."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def packed(self, task: Task) -> bytes:
        """The measure, as bytes that `unpacked` reads."""
        return msgspec.msgpack.encode(self.measure(task))

    def measure(self, task: Task) -> Measure:
        """Shape the load, run it, keep the figures."""
        from vramledger.simulation.run import simulate
        from vramledger.workload.columns import Workload

        case = self._study.cases[task.case]
        table, since_ns, herd = shaped(self._table(case, task), task)
        run, outcomes = simulate(
            Workload.of(self._study.header, table), case.settings, how=cast("Any", self._study.how)
        )
        if outcomes is None:
            raise RuntimeError("a run without a sink gives its outcomes")
        return _measure(run, outcomes, case, self._study.blocks, since_ns, herd, self._study.aim)

    def _table(self, case: Case, task: Task) -> RequestColumns:
        from vramledger.workload.columnar.load_shapes import with_outputs

        table = self._study.tables[case.tables][task.replication]
        return table if case.output_scale == 1 else with_outputs(table, case.output_scale)


def unpacked(data: bytes) -> Measure:
    return _DECODER.decode(data)


def shaped(table: RequestColumns, task: Task) -> tuple[RequestColumns, int, int]:
    """The load of a task, from when on its shape is judged, and how many requests come at once with it."""
    from vramledger.workload.columnar.load_shapes import after_outage, faster, span_ns, with_burst

    scaled = faster(table, task.load)
    quarter_ns = span_ns(scaled) // 4
    match task.shape:
        case Burst(factor=factor, lasts_s=lasts_s):
            lasts_ns = int(lasts_s * NS_PER_S)
            burst = with_burst(scaled, at_ns=quarter_ns, lasts_ns=lasts_ns, factor=factor)
            inside = (burst.arrival_ns >= quarter_ns) & (burst.arrival_ns < quarter_ns + lasts_ns)
            return burst, quarter_ns, int(inside.sum())
        case Outage(down_s=down_s, in_flight_s=in_flight_s):
            kept, herd = after_outage(
                scaled,
                at_ns=quarter_ns,
                down_ns=int(down_s * NS_PER_S),
                in_flight_ns=int(in_flight_s * NS_PER_S),
            )
            return kept, 0, herd
        case _:
            return scaled, 0, 0


def _measure(
    run: Run, outcomes: OutcomeColumns, case: Case, blocks: int, since_ns: int, herd: int, aim: float
) -> Measure:
    from vramledger.simulation.measures import blocks_good, is_good, summary_of

    slo = case.settings.slo
    requests = summary_of(outcomes, slo).all
    since_ps = since_ns * 1000
    good, later = is_good(outcomes, slo), outcomes.sent_ps >= since_ps
    last_ps = requests.last_sent_ps
    left = (outcomes.sent_ps >= 0) & ((outcomes.end_ps < 0) | (outcomes.end_ps > last_ps))
    return Measure(
        requests=requests,
        pool=pool_summary(run.samples, case.settings.layout),
        blocks=tuple(blocks_good(outcomes, slo, blocks)),
        peaks=_peaks(run.samples, blocks),
        preemptions=sum(item.preemptions for item in run.counters),
        steps=sum(item.steps for item in run.counters),
        end_s=run.end_ps / PS_PER_S,
        left_at_last_arrival=int(left.sum()),
        herd=herd,
        herd_good=int(good[later][:herd].sum()),
        calm_s=calm_s(outcomes.sent_ps[later] - since_ps, good[later], aim) if herd else None,
    )


def calm_s(sent_ps: Ints, good: Mask, aim: float) -> float | None:
    """When service is as asked again: seconds to the first of `CALM` requests in a row, in order of sending, of which enough are good.

    None where that does not happen while requests last.
    """
    import numpy as np

    if len(good) < CALM:
        return None
    order = np.argsort(sent_ps, kind="stable")
    sums = np.concatenate([[0], np.cumsum(good[order])])
    met = np.flatnonzero(sums[CALM:] - sums[:-CALM] >= aim * CALM)
    return float(sent_ps[order][met[0]]) / PS_PER_S if len(met) else None


def _peaks(samples: Sequence[PoolSample], spans: int) -> tuple[int, ...]:
    """The most active tokens of a replica in each of `spans` equal spans of the run."""
    if not samples:
        return ()
    end_ps = max(sample.at_ps for sample in samples) + 1
    most: dict[int, int] = {}
    for sample in samples:
        span = sample.at_ps * spans // end_ps
        most[span] = max(most.get(span, 0), sample.physical_tokens)
    return tuple(most[span] for span in sorted(most))
